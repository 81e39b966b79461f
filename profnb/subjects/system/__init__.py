"""What the machine did over the whole cell, traced or not: processors, memory, disks, GPUs, their energy."""
