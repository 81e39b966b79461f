"""Op time by the layers of the model.

name_scopes                names of ops to the scope they were made in; to what a person calls them
called_scopes              PyTorch's ops to the layer that called them
layer_rows, layer_times    scopes to layers, ops to rows of the table and parts of the work; the time of each
flops                      operations of products: of a layer, of PyTorch's ops
memory_kinds               what filled memory, by kind and layer
layer_table                the table of layers, and what bounds each
section                    how it is shown, also as an icicle
"""
