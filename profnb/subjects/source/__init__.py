"""Op time and Python's own by the lines and functions of the user's code."""
