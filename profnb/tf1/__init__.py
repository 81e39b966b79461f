"""TensorFlow 1: session runs, recorded and read.

session_runs, inlined           the first runs of the code with FULL_TRACE, unseen by tracebacks
nodes, node_stats, run_metadata RunMetadata to a Trace
timeline_runs, graph_timeline   the runs of a ``timeline.json``; a Trace to one
tfprof, tfprof_table            tfprof's four views
"""
