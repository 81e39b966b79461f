"""Ops against what the machine can do: their operations and bytes, from the shapes of the graphs that ran.

tensor_sizes                   the shapes of a graph, with what it leaves open filled in
recorded_shapes                the shapes of what ops allocated, as far as a trace has them
op_kinds                       types of ops by what they do to shapes, and how much they compute
op_costs, graph_costs          operations and least bytes of an op; of the op that a trace names
torch_costs                    operations of PyTorch's products
measured_peak                  what a CPU can do, measured on demand
op_roofline, find              each op under its roof: bound by operations, by memory, by neither
section, op_roofline_chart     how it is shown
"""
