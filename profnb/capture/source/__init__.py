"""Where the user's code was, and which of its lines made which op."""
