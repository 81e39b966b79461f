"""NVIDIA's own profilers: their files to a Trace.

database            the door to SQLite files of others: only real tables are read, and only so much
records             kernels, copies, calls and ranges as columns to a Trace
nsys, nvprof        Nsight Systems' export; nvprof's database
printed             what nvprof and nsys print, as CSV
"""
