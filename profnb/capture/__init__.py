"""The only door to the profilers: record one bounded trace around running code.

session, cell               running code to one trace, each framework watched once it is imported; a cell
                            that otherwise runs as if no magic were there
profiler/                   the framework's profiler: started, bounded, always stopped; the code's own
seams, seam                 every outside name that is hooked or read, with what is lost without it and what
                            a hook costs
hooks, hook_clock, signals  before and after other people's calls, with no frame of ours in their tracebacks;
                            what that takes; signals that come meanwhile
marking/, step_records      every step timed, and marked while a trace is recorded; how far the code is
parts/                      the whole wall time, charged to its parts: imports, steps, callbacks, Python
environment                 the surroundings of the code: versions, settings, datasets
models/, source/            the models that ran and what they reached; the user's code: lines, stack, turns
recording, saved/           everything that one capture left behind; beside a trace in a file
journal/                    what is kept on disk meanwhile, for an answer where the process dies
memory/                     what lives as the code ends; what an error says was missing
machine/                    what the machine is busy with; files on network mounts; threads waiting for cores
switches                    settings around a cell, in this process or in a fresh one
"""
