"""The table of rules: each a question to the tree and the tables, a change, words, and an edit.

memory_rules    what frees memory where a cell ran out of it
repeat_rules    what is done too often: set up, validated, saved, worked out again and again
anew_rules      what is made anew: functions traced, models made or loaded again and again
slowing_rules   what takes longer and longer
input_rules     why steps wait for their input
op_rules        small ops, loops of ops, threads, what is compiled again
python_rules    Python and what it runs one by one, between the steps and in them
device_rules    what devices compute and exchange, and why they idle
"""
