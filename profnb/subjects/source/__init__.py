"""Op time and Python's own by the lines and functions of the user's code.

graph_ops, op_lines            the ops of one graph; names of ops to the source lines that made them
called_lines, stack_lines      PyTorch's ops to source lines; its recorded stacks to source lines
code_times                     at which source line the code was, at any time
op_work                        ops that ran, with when Python asked for each
source_charges, source_lines   the time that each source line cost; the table of source lines
find                           all of it for one trace
section                        how it is shown
"""
