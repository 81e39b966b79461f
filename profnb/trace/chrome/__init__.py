"""Chrome trace JSON to a Trace and back, whoever wrote it.

json_scan           bytes to where each field is; numbers without losing a digit
event_args          args of events as stats, on demand
events              raw events, begins and ends made one, and what a reader makes of them
reader, kineto      what one writer's events mean; lines, counters and stats of a Trace
onnx_runtime        what those of ONNX Runtime's sessions mean
writer              a Trace to JSON
"""
