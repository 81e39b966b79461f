"""What it means: pure functions, a trace in, small values and columns out."""
