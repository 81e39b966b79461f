"""The whole cell's wall time, traced or not.

cell_breakdown    the parts of a cell; the callback, or the saving, that took a gap between steps
"""
