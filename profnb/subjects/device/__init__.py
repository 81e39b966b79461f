"""What ran on the devices: kernels, copies, launches, and why a device was idle."""
