"""Runs of two frameworks against each other: what they have in common is the model, layer by layer."""
