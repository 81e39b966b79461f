"""History: the numbers of every run, in one file of the user's, and what they say of the next run.

door             where cells, blocks and programs leave their runs
place            where the file is, and whether runs are kept at all
store            the file: written by many processes at once, bounded, never in a cell's way
identity         what tells runs apart: the code, the commit, the machine
keeping          a Profile to its row, at the end of a cell, a block or a program
change_points    a series of runs to where it changed, with a known rate of false alarms
series           rows to series: what each run changed, which changes are alarms, how runs of a cell vary;
                 what past runs tell of a Profile's code, and of advice that was tried
showing          the list, the picture, the alarm's sentence, CSV
"""
