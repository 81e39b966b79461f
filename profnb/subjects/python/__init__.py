"""Where Python's own time went.

python_time, python_counts   samples of the stack to functions and calls; a profiler's counts to the same
call_tree                    functions that called each other, as blocks of an icicle
find                         all of it for one trace
section                      how it is shown
"""
