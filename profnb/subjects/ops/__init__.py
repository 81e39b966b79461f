"""What ran, op by op."""
