"""What tf.data did, and how the training waited for it.

iterators, input_functions   the tree of iterators; the users' functions in it
input_work                   events to the iterators that they ran for
buffers                      how full buffers and queues were
waiting, charges             the training's waiting, step by step; the iterators that kept it waiting
pipeline                     the table of iterators
find                         all of it for one trace
diagnosis, input_causes      what starves the training; why an iterator may be slow, and what helps
section                      how it is shown
"""
