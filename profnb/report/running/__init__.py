"""What is shown while code runs, in one output that is empty again when it is over.

slot                    the output, written anew again and again
live_line, live_text    the line under a running cell; what it says of a capture
progress                how far a series of runs is, row by row
"""
