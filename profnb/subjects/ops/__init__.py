"""What ran, op by op.

op_table                what ran, how often, for how long
eager_ops               ops that Python ran one by one
autograd_nodes          PyTorch's backward nodes to the ops of the way forward
optimizers              the names of optimizers' scopes
growth                  how a session's graph changed from run to run (TF1)
find                    all of it for one trace
section                 how it is shown
advice                  rules on the optimizer, threads, graphs that grow
session_advice          rules on what loops of TF1 do beside training
dispatch_advice         rules on work of JAX and PyTorch that Python starts piece by piece
torch_compile_advice    rules on ``torch.compile``
"""
