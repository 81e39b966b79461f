"""The memory that a batch takes before it is tried, and the largest that fits: ``profnb.fits``.

fitting             what was given, to a forecast: which batches are run, and where
memory_forecast     the forecast: a line through what was measured, checked by one batch more
meters              the memory of a step: of the process, PyTorch's allocators, session runs, as XLA plans it
kept_state          what code can change, kept and put back in place
fresh_process       a process that runs a saved model at the batches that it is told
"""
