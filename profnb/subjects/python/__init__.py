"""Python's own time.

python_time    samples of the stack, or a profiler's counts, to functions and calls
section        how it is shown
"""
