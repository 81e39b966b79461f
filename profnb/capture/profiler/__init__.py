"""The frameworks' profilers themselves: started, stopped, and what they print meanwhile kept out of the cell.

window                              when a trace is recorded; a profiler that the code starts beside ours
doors                               the profilers of one window, to one trace
profiler_door                       the profiler of one framework, its own log lines; its process of a job
tensorflow_door, jax_door, torch_door    each for one capture; other processes, through TensorFlow's service
torch_watch                         a loop over PyTorch to its steps; its layers, marked in the trace
"""
