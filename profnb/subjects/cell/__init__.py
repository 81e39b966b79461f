"""Where the whole cell's wall time went, traced or not.

cell_breakdown       the parts of a cell, with the code's own Python told by its source lines
section              how they are shown
spent_advice         what the rules count: the parts without imports and profnb itself
advice               rules on Keras called, or made, again and again
validation_advice    rules on validation that is larger than training
slowing_advice       the rule on steps that take longer and longer
"""
