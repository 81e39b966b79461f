"""Where the whole cell's wall time went, traced or not."""
