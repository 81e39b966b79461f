"""The trace itself, drawn.

lanes, marks, scene         where events stand; what of them fits; both for one study
lane_names, tracks          what lines are called; sampled quantities below them
first_view                  which steps it opens on
pack, still, element, live  bytes for the browser; a picture of text; the HTML; questions to the kernel
pair                        two timelines on one axis
export                      the Chrome trace that shows what was found
browser/                    the viewer
"""
