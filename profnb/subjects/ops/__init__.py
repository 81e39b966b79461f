"""What ran, op by op.

op_table                what ran, how often, for how long
eager_ops               ops that Python ran one by one
autograd_nodes          PyTorch's backward nodes to the ops of the way forward
optimizers              the names of optimizers' scopes, and their ops
graph_loops             loops inside of compiled functions
growth                  how a session's graph changed from run to run (TF1)
find                    all of it for one trace
section                 how it is shown
"""
