"""The trace itself, drawn.

lanes, marks, scene         where events stand; what of them fits; both for one study
pack, still, element, live  bytes for the browser; a picture of text; the HTML; questions to the kernel
export                      the Chrome trace that shows what was found
*.js                        the viewer
"""
