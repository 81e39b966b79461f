"""TF1 RunMetadata to a Trace."""
