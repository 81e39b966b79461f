"""Chrome trace JSON to a Trace and back, whoever wrote it.

json_scan, json_numbers, json_values  bytes to where each field is; numbers without losing a digit; one value
events, pairs, event_args       raw events; begins and ends made one; args as stats, on demand
reader, dialect, kineto         what one writer's events mean; lines, counters and stats of a Trace
counters                        samples of quantities
json_text, stat_texts, writer   a Trace to JSON
"""
