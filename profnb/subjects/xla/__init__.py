"""What XLA compiled and ran, and what its instructions cost.

hlo_ops, hlo_served    events to instructions and the ops behind them; instructions without a name
command_buffers        kernels that XLA starts as one graph to their instructions
hlo_costs              operations and bytes of an instruction
xla_modules            programs: what each cost to compile, to run and to hold
xla_ops, xla_tree      the table of XLA's ops; its time by program, op of XLA, op of the framework
find                   all of it for one trace
section, xla_chart     how it is shown
"""
