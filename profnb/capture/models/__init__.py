"""The models that ran, and what their fits reached, as plain data.

model_watch      the models that ran, or that live in a namespace, PyTorch's too; what fits reached
load_watch       which models were loaded how often
layer_facts      a model of Keras and its layers: what they hold, give and compute with
op_order         what ops are for whose names do not tell, by the order in which a step made them
"""
