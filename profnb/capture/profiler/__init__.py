"""The TensorFlow profiler itself: started, stopped, and what it prints meanwhile kept out of the cell.

window, doors                         when a trace is recorded; the profilers of one window, to one trace
codes_profiler                        a profiler that the code starts by itself, beside ours
profiler_door, jax_door, torch_door   TensorFlow's, JAX's and PyTorch's, each for one capture
held_back                             the profiler's own log lines, while it starts or stops
fetched_batches                       Keras on JAX fetching a batch, marked in the trace
torch_loops, torch_batches            a loop over PyTorch to its steps; to the examples of each
torch_scopes                          layers called on PyTorch, marked in its trace
torch_compiling                       hooks that ``torch.compile`` does not see
ranks                                 which of a job's processes this is
remote                                other processes, traced through TensorFlow's profiler service
"""
