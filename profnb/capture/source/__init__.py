"""The user's code: its lines as they run, and which of them made which op.

user_code                     which files are the user's own, what of their text is kept; uses of sessions
source_watch, source_records  the watch of all of it, and what it has seen
line_watch, stacks            when each source line began; samples of Python's stack
graph_lines                   graphs to the source lines of their ops, and the shapes of their tensors
layer_lines                   layers of Keras to the lines of the cells and modules that made them
"""
