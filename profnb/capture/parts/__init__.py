"""Where the whole wall time of the captured code went: looks at its stack, exact counters, parts that add up.

stack_parts     which part of the cell a stack is in
cell_division   looks and counters to the parts
own_time        what profnb did itself on the cell's thread
in_flight       batches that JAX still computes when Keras is done with them
part_records    the parts, as plain values
"""
