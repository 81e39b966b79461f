"""Op time by the layers of the model.

name_scopes, op_title        names of ops to the scope they were made in; to what a person calls them
model_scopes                 name scopes to the live model's layers
called_scopes                PyTorch's ops to the layer that called them
layer_rows, layer_times      ops to rows of the table and parts of the work; to the time of each
flops, layer_bounds          operations of a layer's products; its bytes, and what bounds it
layer_columns, layer_table   the columns of the table; the table
find                         all of it for one trace
layer_tree, layer_chart      the table as a tree; as an icicle
section                      how it is shown
"""
