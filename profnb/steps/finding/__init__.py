"""How steps are found in a trace.

sources          all ways, in order of trust
marked           step markers, and a device's own line of steps
calls, cycles    repeated calls of functions; which of them make up one iteration
loops, tapes     eager loops, by the next element or the gradient of each turn
turn_times       the same by the wall clock, traced or not
warm_up, epochs  which steps are left out of averages; where epochs end
"""
