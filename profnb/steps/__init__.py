"""The spine: when training went through its iterations, and where each step's time went.

windows, finding/          steps of a trace and the gaps between them; how steps are found
nesting, streams           parents and self time on a thread; a device's work, and what set it going
grouping                   the step that an event belongs to, across threads; a step's end on its device
activities                 what a host or a device was doing, by priority
breakdown, summary         every picosecond of a step to one category; the headline's numbers, batch sizes
step_times                 wall times of every step, traced or not
untraced                   what tracing cost; all times without that
program_kind               the framework, the device, how steps were found: one value that all ask
spine                      all of it for one trace, each value once; as tables
"""
