"""The models that ran, and what their fits reached, as plain data."""
