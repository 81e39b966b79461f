"""Several traces at once: hosts of one capture (fleets), running processes, many traces to a row each.

fleet_loading, fleets    a path to the hosts of one capture; what is said of them
tracing_remotely         one window of running processes
summaries                many traces to one row each
pooled                   one call for each of many values, on the workers of any executor
sweep_rounds, crews      rounds of a sweep on such workers; who ran them, in sentences
letting_go               opened traces to free memory
"""
