"""The means that a section is drawn with.

theme, markup           the palette; HTML that a type tells from text, rows as tables
section                 a section's value, from a declared table
programs                the scripts of a page, and how a saved notebook carries them
figures                 figures in plotly's schema, and how each frontend is given one
live_outputs            questions from a script in an output to the kernel; what lives behind outputs
*.js                    the scripts that draw charts, give tables their look, and ask the kernel
"""
