"""Where Python's own time went."""
