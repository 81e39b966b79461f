"""The models that ran, and what their fits reached, as plain data.

model_watch                 the models that ran, or that live in a namespace
layer_facts, layer_shapes   a layer of Keras; the shapes of what it takes, gives and holds
layer_graph                 which layers are called again, and where the gradient must reach
op_order                    what ops are for whose names do not tell, by the order in which a step made them
torch_modules               PyTorch's modules
histories                   what fits reached: the last value of each metric
"""
