"""What the machine did over the whole cell, traced or not: processors, memory, disks, GPUs, their energy.

machine_use               looks at the machine to shares, memory, power and rates
energy                    a GPU's power to the energy of a step and of an example
throttling                clocks of a GPU that were held back
section, machine_chart    how it is shown
"""
