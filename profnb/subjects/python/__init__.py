"""Where Python's own time went.

python_time, python_counts   samples of the stack to functions and calls; a profiler's counts to the same
call_tree                    functions that called each other, as blocks of an icicle
gap_causes                   gaps between steps to the callback, or the saving, that took them
find                         all of it for one trace
section                      how it is shown
advice, remedies             rules on Python around the steps and between them; what helps
function_advice              the rule on Python functions that a step's graph calls
"""
