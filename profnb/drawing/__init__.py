"""What a section is drawn with.

theme, html_table, plain    the palette; rows as HTML that survives sanitizers; rows as text
section                     a section's value, from a declared table, as HTML and as text
figures, plotly             what figures share; how each frontend is given one
widget_marks                how outputs with widgets of ours are known again
"""
