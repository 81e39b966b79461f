"""The ops that ran.

op_table        what ran, how often, for how long
op_execution    ops that Python ran one by one, loops of compiled functions, graphs that grow (TF1)
section         how it is shown
"""
