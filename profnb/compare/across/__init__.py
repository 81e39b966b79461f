"""Runs of two frameworks against each other: what they have in common is the model, layer by layer.

layer_differences    what each layer took in either, matched by name
layer_section        how it is shown, side by side
"""
