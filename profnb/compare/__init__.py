"""Runs against runs: how much faster, how sure, and what accounts for it."""
