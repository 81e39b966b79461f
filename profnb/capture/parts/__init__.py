"""Where the whole wall time of the captured code went: looks at its stack, exact counters, parts that add up.

stack_parts     which part of the cell a stack is in, and the way there
call_clock      which functions run between two steps, call by call, in a few of the gaps
cell_division   looks and counters to the parts
tree_making     ways with their times to the tree of the cell
own_time        what profnb did itself on the cell's thread
in_flight       batches that JAX still computes when Keras is done with them
part_records    the parts, as plain values
tree_records    the nodes of the tree, likewise
"""
