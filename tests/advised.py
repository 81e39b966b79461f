"""The advice on a trace that another program recorded, by rule."""

from profnb.advice.advise import advise
from profnb.advice.cell_model import Model
from profnb.advice.cell_tree import grow_tree
from profnb.advice.rules.device_rules import DEVICE_RULES
from profnb.advice.rules.idle_rules import IDLE_RULES
from profnb.advice.replay import replay


def advised(study):
    """What is said of it, in its order, by rule; shares are of the recorded window, or of the cell where a capture looked at it."""
    cell = study.recording.cell
    tree = grow_tree(cell, study)
    return {} if tree is None else {one.rule: one for one in advise(Model(tree, study, cell=cell))}


def alone(study):
    """What each change on devices would save, were it the only one, by rule: shares of the recorded window."""
    model = Model(grow_tree(None, study), study)
    savings = {one.rule: replay(model.tree, one.edits) for rule in (*DEVICE_RULES, *IDLE_RULES) for one in rule(model)}
    return {rule: (saving.low_ps / model.tree.whole_ps, saving.high_ps / model.tree.whole_ps) for rule, saving in savings.items()}
