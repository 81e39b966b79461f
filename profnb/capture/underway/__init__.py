"""What can be told of a capture while the code runs: where Keras' runs stand, and the capture itself.

standing      where a capture stands, read by another thread
keras_runs    how far Keras' ``fit``, ``evaluate`` and ``predict`` are
"""
