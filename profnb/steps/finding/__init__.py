"""The search for steps in a trace.

sources   all ways, in order of trust: markers, ranges, calls, loops; warm-up, and where epochs end
calls     repeated calls of functions; which of them make up one iteration
loops     eager loops, by the next element or the gradient of each turn
"""
