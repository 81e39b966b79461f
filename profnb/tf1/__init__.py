"""TensorFlow 1: session runs, recorded and read.

session_runs                the first runs of the code traced, unseen by tracebacks
gap_watch                   Python between runs, and what each statement of it is to the run
graph_queues                the queues of a graph, and what is put into them
nodes, run_metadata         RunMetadata to a Trace; several runs to one file
event_file                  files that hold runs: TensorBoard's, with scalars too, and what tfprof saved
tfprof                      tfprof's four views
"""
