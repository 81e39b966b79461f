"""Op time by the layers of the model."""
