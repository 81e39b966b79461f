"""The machine that the code runs on, looked at while it runs: how busy it is, and files of other machines.

machine_watch     a thread that looks: processors, memory and disks by psutil, GPUs by NVML
waits             threads that waited for a free core, and for files on network mounts
memory_limits     how much memory this process may take, and takes
"""
