"""Where the cell's time went, and what may be behind it, as far as more than one subject tells.

cell_tree        the wall time of the cell as one tree, down to what its steps computed
numbers          what steers the rules: 12 numbers, and how each was found
held_up          how long the input's threads work beside the steps, and what they and the host hold up
starving         queues that steps wait for, files read one by one or on a network, loaders of PyTorch
around_ops       how long TensorFlow is at work while no op that it records runs
between_steps    Python between the steps of a loop, and in them, while nothing else is at work
eager_runs       ops that Python runs one by one, to what starting them takes
pieces           what is started one by one where a compiler would make few of it
compiled_again   programs that were compiled again and again, and why
traced_again     tf.functions that are traced again and again
repeats          models that are made anew, functions that validate
slowing          steps that take longer and longer
reads            results that the host waits for in the loop
threads          how many were set and at work; what is noted of them
uncompilable     ops for which XLA has no kernel
"""
