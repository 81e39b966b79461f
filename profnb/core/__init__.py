"""The things that every room may use.

errors, options     what profnb raises on purpose; what to record, also as a line takes it
arguments           words of a command line, read or refused before anything runs
units, printable    numbers to text; text of others for a terminal
columns, joining    array types, and values looked up by key; rows of two tables by equal keys
jit                 the door to Numba; plain Python while there is little to do
table, glossary     a table declared once; the field's terms, each once
block               one block of an icicle
parsing             Python's parser for the user's cells and modules, read once more
safe_files          files that are read or written whole or not at all, and folders for a while
sharing             what may leave in a page, a notebook, an export or a file: one rule for all
"""
