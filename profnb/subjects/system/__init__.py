"""The machine over the whole cell, traced or not: processors, memory, disks, GPUs, their energy.

machine_use    looks at the machine to shares, memory, power and rates; clocks held back; energy
section        how it is shown
"""
