"""The whole wall time of the captured code: looks at its stack, exact counters, parts that add up.

stack_parts     the part of the cell that a stack is in, and the way there
call_clock      functions that run between two steps, call by call, in a few of the gaps
cell_counters   what profnb did itself on the cell's thread; batches that JAX still computes
cell_division   looks and counters to the parts
tree_making     ways with their times to the tree of the cell
part_records    the parts and the nodes of the tree, as plain values
"""
