"""Many traces at once: hosts of one capture (fleets), running processes, rounds of a sweep, a row each.

fleets          a path, or running processes, to the hosts of one capture; what is said of them
summaries       many traces to one row each; one call for each of many values on an executor's workers
sweep_rounds    rounds of a sweep on the workers of an executor; who ran them, in sentences
"""
