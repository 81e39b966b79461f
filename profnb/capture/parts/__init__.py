"""Where the whole wall time of the captured code went: a clock of parts, and what tells it what runs.

part_watch               what is hooked so that the clock knows what runs
part_clock, part_stack   what begins and ends, to parts that add up; the stack of what runs
keras_run                a ``fit``, ``evaluate`` or ``predict`` on that stack
in_flight                batches that JAX still computes when Keras is done with them
part_records             the parts, as plain values
"""
