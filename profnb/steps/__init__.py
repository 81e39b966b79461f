"""The spine: when training went through its iterations, and where each step's time went.

windows, finding/          steps of a trace; how they are found
gaps                       what lies between two steps: part of a period, end of an epoch, pause
grouping, nesting          which step an event belongs to, across threads; parents and self time on a thread
streams, launching         a device's work; what set it going
device_periods             steps that end with the work they launched on a device
activities, compilation    what a host or a device was doing, by priority; programs being compiled
breakdown, summary         every picosecond of a step to one category; the numbers of the headline
untraced/                  what tracing cost; all times without that
step_times, examples       wall times of every step, traced or not; batch sizes
spine, step_tables         all of it for one trace, each value once; as tables
"""
