"""TensorFlow 1: session runs, recorded and read.

session_runs                the first runs of the code traced, unseen by tracebacks
gap_watch                   Python between runs, and what each statement of it is to the run
graph_queues                the queues of a graph, and what is put into them
nodes, run_metadata         RunMetadata to a Trace; several runs to one file
event_file                  TensorBoard's event files: the runs in them, and the scalars
tfprof, tfprof_dump         tfprof's four views; what tfprof saved, as the runs it was made of
"""
