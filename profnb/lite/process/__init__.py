"""Processes of their own, for what can end them: TensorFlow's converter, and the interpreters.

converting     TensorFlow's converter
interpreting   interpreters that run, are timed, and show their tensors
op_profiler    in there: the time of each op, by the profiler that LiteRT exports
interpreters   that process, seen from here
"""
