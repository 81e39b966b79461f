"""XLA: its programs and ops, and the costs of its instructions.

hlo_ops       events to instructions and the ops behind them, kernels that XLA starts as one graph too
hlo_program   operations and bytes of an instruction; the named op that one without a name works for
xla_ops       the tables of XLA's ops and programs; its time by program, op of XLA, op of the framework
section       how it is shown
"""
