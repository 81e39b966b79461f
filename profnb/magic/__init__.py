"""What a magic does with its line: captures a cell, finds a result, runs a sweep.

magic_options    the options of every magic, and their help
known_results    results by name, label or path; traces opened
cell_runs        a cell captured, repeated, compared and shown
sweep_magic      %%tfsweep
lite_magic       %tflite
"""
