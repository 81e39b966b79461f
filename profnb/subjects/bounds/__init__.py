"""Ops against what the machine can do: their operations and bytes, from the shapes of the graphs that ran.

tensor_sizes         types of ops by what they do to shapes; the shapes of a graph, filled in
op_costs             operations and least bytes of the ops that a trace names
measured_peak        what a CPU can do, measured on demand
op_roofline          each op under its roof: bound by operations, by memory, by neither
section              how it is shown
"""
