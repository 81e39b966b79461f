"""The recorded trace: columns, not objects.

names                           the names we rely on; which of them are ops
model                           Trace, Events, Lines, Stats: what an event has besides name and time
wire, xplane                    protobuf to columns; ``*.xplane.pb`` to a Trace
xplane_stats                    its stats, on demand: where they are, and all of them in one go
enqueued                        programs of TPUs, the calls that enqueued them, and the clock between
hlo                             XLA's programs as a trace holds them
assemble, chrome/               events in any order to a Trace; Chrome trace JSON, whoever wrote it, and back
nvidia/, amd/, memory/          files of Nsight Systems and nvprof; of rocprofv3; of memory alone
pstats_file, pprof              profiles that Python's cProfile saved; those of pprof
runs, remote_files              a path, a run, a logdir: which files, which of one capture; from a URL
formats                         formats told by their first bytes: one table of what reads which
files                           a file of any format to a Trace, and back as it may leave
"""
