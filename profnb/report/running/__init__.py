"""What is shown while code runs, in one output that is empty again when it is over."""
