"""TensorFlow 1: session runs, recorded and read.

session_runs, inlined             the first runs of the code traced, unseen by tracebacks
gap_watch, gap_roles              Python between runs, and what each statement of it is to the run
statements                        which statements give what another one needs
queue_watch, queue_graph          what is put into queues; which queues a graph has
runs_file                         runs to one file and back
nodes, node_stats, run_metadata   RunMetadata to a Trace
timeline_runs, graph_timeline     the runs of a ``timeline.json``; a Trace to one
tfprof, tfprof_table              tfprof's four views
"""
