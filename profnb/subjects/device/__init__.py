"""What ran on the devices: kernels, copies, launches, and why a device was idle.

device_ops               device work to the op that asked for it
kernels, precision       each kernel, op by op; the width of the numbers that it computes with
launches, copies         what set device work going, and how long that waited; copies by direction
devices, unused          one row per device; GPUs that the program does not use
idle                     why the busiest device was idle
peaks, roofline          what a device could do at most; XLA's ops under that roof
find                     all of it for one trace
section, device_charts   how it is shown
"""
