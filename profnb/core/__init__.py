"""What every room may use: errors, units, options, array types, the door to Numba."""
