"""The trace itself, drawn.

scene            where events stand, what lines are called, sampled quantities below them
pack             what of the events fits; bytes for the browser
element          a picture of text; the HTML, of one trace or two, and the answers to its questions
export           the Chrome trace that shows what was found
browser/         the viewer
"""
