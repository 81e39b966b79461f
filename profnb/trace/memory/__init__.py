"""Files that hold memory alone to a Trace of allocations.

torch_snapshot   what ``torch.cuda.memory._dump_snapshot`` writes
"""
