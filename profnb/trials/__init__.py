"""Advice tried: the code runs as it is and as edited by turns, and leaves nothing behind.

trying           advice to edits, to trials, to rows
alternating      runs by turns, until the difference is known or the time is spent
cell_runs_again  a cell of the notebook, run with everything put back
cell_reads       what a cell reads, and why it may not be run again
workplace        a temporary folder for what trials write
script_runs      a script's advice, tried in fresh processes
promises         trials that were kept, by rule: promised beside measured
"""
