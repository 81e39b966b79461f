"""The work behind a magic's line: a cell captured, a result found, a sweep run.

magic_options    the options of every magic, and their help
known_results    results by name, label or path; traces opened; %tflite, %tfmemory
cell_runs        a cell captured, repeated, compared, shown, its advice tried
sweep_magic      %%tfsweep
"""
