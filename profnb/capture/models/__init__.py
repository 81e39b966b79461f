"""The Keras models that ran, as plain data."""
