"""Files that hold memory alone.

allocations         allocations, whoever recorded them, as events
torch_memory        PyTorch's memory snapshot, and its memory timeline, to a Trace
"""
