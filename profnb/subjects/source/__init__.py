"""Op time and Python's own by the lines, functions and ranges of the user's code.

code_times      at which source line the code was at any time, and the ops that it asked for
op_lines        names of ops to the source lines that made them
torch_lines     PyTorch's ops, and its recorded stacks, to source lines
source_lines    the table of source lines: the time that each cost
range_table     ranges that the user marked: what the host took for each, and what it kept devices at
section         how it is shown
"""
