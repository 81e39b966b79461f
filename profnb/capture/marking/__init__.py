"""Running code to steps: every step is timed, and marked in the trace while one is recorded.

step_recorder    all of it, on the thread of the capture
trace_events     the user's markers, Keras 2's, calls of a tf.function; JAX's markers
keras_batches    Keras' batches and epochs
own_loops        iterations over PyTorch, session runs
retracings       functions that were traced anew, and with what
open_steps       what has begun and not ended; what ends is recorded and told
"""
