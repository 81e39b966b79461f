"""What feeds the session runs of TensorFlow 1: arrays that Python makes, and queues."""
