"""tf.data's work, and the training's waiting for it.

iterators    the tree of iterators, the users' functions in it, the events that it ran
waiting      the training's waiting: by the iterator that caused it, and step by step
pipeline     the table of iterators; how full buffers and queues were
diagnosis    what starves the training, and what helps
section      how it is shown
"""
