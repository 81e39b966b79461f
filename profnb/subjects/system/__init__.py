"""The machine over the whole cell, traced or not: processors, memory, disks, GPUs, their energy.

machine_use    looks at the machine to shares, memory, power and rates; clocks that were held back
energy         a GPU's power to the energy of a step and of an example
section        how it is shown
"""
