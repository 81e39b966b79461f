"""What a capture saw besides the trace, to a file beside it and back."""
