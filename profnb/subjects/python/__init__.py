"""Python's own time.

python_time    samples of the stack, or a profiler's counts, to functions and calls
find           all of it for one trace
section        how it is shown
"""
