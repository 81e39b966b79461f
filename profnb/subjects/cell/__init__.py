"""Where the whole cell's wall time went, traced or not.

cell_breakdown       the parts of a cell, with the code's own Python told by its source lines
section              how they are shown
gap_causes           a gap between steps to the callback, or the saving, that took it
"""
