"""What to change, with evidence and the most that it can gain."""
