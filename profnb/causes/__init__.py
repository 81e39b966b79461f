"""Where the cell's time went, and what may be behind it, as far as more than one subject tells.

cell_tree        the wall time of the cell as one tree, down to what its steps computed
numbers          what steers the rules: 12 numbers, and how each was found
starving         why steps wait for a batch, what the threads that make batches hold up, threads at work
python_work      Python between steps and in them, ops that it runs one by one
reads            results that the host waits for
pieces           what is started one by one where a compiler would make few of it, or cannot
compiled_again   programs and functions that are compiled or traced again and again
repeats          models that are made anew, functions that validate, work that depends on nothing learned
growing          memory that grows from step to step, and what keeps it
unrolled         loops of Python that a traced function wrote out
slowing          steps that take longer and longer
"""
