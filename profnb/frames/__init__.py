"""Columns to the pandas tables a user sees: the one room where integers become milliseconds.

Tables are made fresh on each access, so changing one changes nothing else. Times are floats in the
unit of the column's suffix; a missing value is NaN.
"""
