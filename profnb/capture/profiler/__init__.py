"""The TensorFlow profiler itself: started, stopped, and what it prints meanwhile kept out of the cell."""
