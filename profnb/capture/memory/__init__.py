"""Memory as a capture finds it: what an error says was missing, and what lives as the code ends.

memory_records    both as plain data
memory_errors     an error to what was asked for and what there was
held_memory       living arrays by kind: weights, gradients, optimizer state, data
python_objects    Python's objects by line, through memray
"""
