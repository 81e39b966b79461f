"""Files that hold memory alone.

allocations         allocations, whoever recorded them, as events
torch_snapshot      PyTorch's memory snapshot to a Trace
torch_timeline      PyTorch's memory timeline to a Trace
"""
