"""What tf.data did, and how the training waited for it."""
