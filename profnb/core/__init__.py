"""What every room may use.

columns, units, errors      array types; numbers to text; what profnb raises on purpose
options, jit                what to record; the door to Numba
table, glossary             a table declared once; the field's terms, each once
"""
