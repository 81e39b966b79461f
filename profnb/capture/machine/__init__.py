"""The machine that the code runs on, looked at while it runs: how busy it is, and files of other machines.

machine_watch, machine_records    a thread that looks, and what it has seen
host_reader, gpu_reader           processors, memory and disks by psutil; GPUs by NVML
network_files                     files on network mounts that are read
core_waits                        how long threads waited for a free core
call_costs                        what a compiled call and a new iterator cost in this process
"""
