"""Which files are of one capture: when each was recorded, and on which host."""
