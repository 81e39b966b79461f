"""The advice on a trace that another program recorded, by rule."""

from profnb.advice.advise import advise, proposals_of
from profnb.advice.cell_model import Model
from profnb.causes.cell_tree import grow_tree
from profnb.advice.replay import replay


def advised(study):
    """What is said of it, in its order, by rule; shares are of the recorded window, or of the cell where a capture looked at it."""
    cell = study.recording.cell
    tree = grow_tree(cell, study)
    return {} if tree is None else {one.rule: one for one in advise(Model(tree, study, cell=cell))}


def proposed(study):
    """What the rules propose of it, by rule, whatever that saves."""
    cell = study.recording.cell
    return {one.rule: one for one in proposals_of(Model(grow_tree(cell, study), study, cell=cell))}


def alone(study):
    """What each change would save, were it the only one, by rule: shares of the recorded window or the cell."""
    cell = study.recording.cell
    model = Model(grow_tree(cell, study), study, cell=cell)
    savings = {one.rule: replay(model.tree, one.edits) for one in proposals_of(model)}
    return {rule: (saving.low_ps / model.tree.whole_ps, saving.high_ps / model.tree.whole_ps) for rule, saving in savings.items()}
