"""The advice on a trace that another program recorded, by rule."""

from profnb.advice.advise import advise
from profnb.advice.cell_model import Model
from profnb.advice.cell_tree import grow_tree


def advised(study):
    """What is said of it, in its order, by rule; shares are of the recorded window, or of the cell where a capture looked at it."""
    cell = study.recording.cell
    tree = grow_tree(cell, study)
    return {} if tree is None else {one.rule: one for one in advise(Model(tree, study, cell=cell))}
