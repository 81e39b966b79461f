"""Running code to steps: every step is timed, and marked in the trace while one is recorded.

step_recorder    all of it, on the thread of the capture; Keras' batches, and how far its runs are; own loops
trace_events     the user's markers, Keras 2's, calls of a tf.function, functions traced anew; JAX's markers
open_steps       steps that have begun and not ended; eager gradients, and where turns may have begun
"""
