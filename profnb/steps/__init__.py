"""When training went through its iterations, and which event belongs to which."""
