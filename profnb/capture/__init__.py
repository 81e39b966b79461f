"""Record one bounded trace around running code: the only door to the TensorFlow profiler."""
