"""The whole wall time of the captured code: looks at its stack, exact counters, parts that add up.

stack_parts     the part of the cell that a stack is in
tree_paths      the ways there, and the tree of the cell in the making
cell_counters   profnb itself on the cell's thread; batches that JAX still computes; calls between two steps
cell_division   looks and counters to the parts
part_records    the parts and the nodes of the tree, as plain values
"""
