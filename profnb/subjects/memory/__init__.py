"""Allocators: their use over time and at the peak.

allocators    what was in use, and reserved, after every allocation
peak          the peak and what was alive then, what grows, what would fit; memory of session runs by op
section       how it is shown
"""
