"""The spine: when training went through its iterations, and where each step's time went.

windows, finding     steps of a trace; how they are found
gaps                 what lies between two steps: part of a period, end of an epoch, pause
grouping, nesting    which step an event belongs to, across threads; parents and self time on a thread
streams, launching, compilation    a device's work; what set it going; programs being compiled
breakdown, summary   every picosecond of a step to one category; the numbers of the headline
step_times, examples wall times of every step, traced or not; batch sizes
spine                all of it for one trace, each value once
"""
