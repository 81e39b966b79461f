"""What can be told of a capture while the code runs: where Keras' runs stand, and the capture itself."""
