"""Runs against runs: how much faster, how sure, and what accounts for it.

steady                        one run's steps to the times that a comparison averages
estimates, dunnett            what a few values tell of a mean; several means against the best, all at once
speedup, quality              how much faster, and how sure; the cost in what was learned
differences, op_differences   where two runs differ by category; op by op
section, box_chart            how a comparison is shown; its runs as boxes
rounds, best_setting          settings that were run in rounds, to how they differ; each beside the best one
sweeps, settings_table        the runs of a sweep to what each setting achieves; as a table
sweep_words, sweep_section    what a sweep can tell and what it cannot; how it is shown
across/                       runs of two frameworks
"""
