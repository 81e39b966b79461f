"""Feeds of TensorFlow 1's session runs: arrays that Python makes, and queues.

feeding        session runs that are fed by hand, and Python between them; how full each queue was
"""
