"""What was recorded: columns, not objects."""
