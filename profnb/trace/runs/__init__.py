"""Which files are of one capture: when each was recorded, and on which host.

capture_times     when a file was recorded and where, without reading the rest of it
grouping_files    files to captures
remote_files      a URL to local copies of its files
masked_trace      a trace as it may leave in a saved run, in as many bytes
"""
