"""Files to findings.

measuring      each is tried, then all are timed by turns, judged, and looked into
bench          what that shares: the interpreter, a folder, the shape of a run
outputs        what comes out, judged
keras_side     the Keras model beside them
op_layers      ops to the layers they are from
op_rows        ops to rows of the tables
op_study       each model's ops: their layers, errors and times
"""
