"""What a capture keeps on disk while its code runs, for an answer where the process dies.

journal_file      the file: records that are appended, two places for what is newest, and who still writes it
journal           a thread that writes what a capture has seen, twice a second
dead_cell         a file whose process died, to a recording
"""
