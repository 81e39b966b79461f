"""AMD's own profilers: their files to a Trace.

rocprof             the JSON of rocprofv3
"""
