"""Advice tried: the code runs as it is and as edited by turns, and leaves nothing behind.

alternating      advice to trials: runs by turns, until the difference is known or the time is spent
cell_runs_again  a cell of the notebook, run with everything put back
cell_reads       what a cell reads, and why it may not be run again
script_runs      a script's advice, tried in fresh processes
promises         trials that were kept, by rule: promised beside measured
"""
