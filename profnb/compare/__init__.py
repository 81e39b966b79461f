"""Runs against runs: how much faster, how sure, and what accounts for it.

estimates                     a few values to an estimate of their mean, and two samples against each other
speedup, quality              how much faster, and how sure; the cost in what was learned
differences, op_differences   where two runs differ by category; op by op, layer by layer, event by event
tree_differences              where the whole cell's time differs, part by part
part_section                  how that is shown, and written for a pull request
section                       how a comparison is shown, its runs as boxes
ranking                       settings that were run in rounds, to how each stands to the best one
trial_table, trial_section    trials of edits, as rows and as a section of the report
sweeps, sweep_section         the runs of a sweep to what each setting achieves; how it is shown
"""
