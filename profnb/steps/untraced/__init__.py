"""What tracing cost the steps, and their times without it.

cost       traced against untraced steps that are neighbours
clock      the cost of recording events, taken out of all times
"""
