"""Where the user's code was, and which of its lines made which op.

user_code, kept_source         which files are the user's own; which of their text is kept, and by what name
session_use                    whether it means to use sessions of TensorFlow 1
source_watch, source_records   the watch of all of it, and what it has seen
line_watch, stacks             when each source line began; samples of Python's stack
graph_reading                  one graph: its ops, the source lines that made them, the functions they call
graph_lines, graph_shapes      graphs to the source lines of their ops; to the shapes of their tensors
layer_calls, layer_lines       calls that may have made layers; layers to the lines of the cells that did
tape_watch, turn_records       eager gradients, marked in the trace; where turns of eager loops may have begun
"""
