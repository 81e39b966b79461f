"""The machine that the code runs on, looked at while it runs: how busy it is, and files of other machines.

machine_watch     a thread that looks: processors, memory and disks by psutil, GPUs by NVML
network_files     files on network mounts that are read
core_waits        threads that waited for a free core
memory_limits     how much memory this process may take, and takes
call_costs        what a compiled call and a new iterator cost in this process
"""
