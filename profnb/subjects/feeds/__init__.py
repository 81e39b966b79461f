"""What feeds the session runs of TensorFlow 1: arrays that Python makes, and queues.

feeding        session runs that are fed by hand, and Python between them; how full each queue was
queue_chart    how queues are shown
"""
