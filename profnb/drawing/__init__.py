"""What a section is drawn with.

theme, markup                 the palette; HTML that a type tells from text
html_table, sortable, plain   rows as HTML that survives sanitizers; to sort and search; as text
section                       a section's value, from a declared table, as HTML and as text
figures, plotly               what figures share; how each frontend is given one
icicle, roof_figure           blocks under what they are part of; points under their roofline
kernel_bridge                 questions from a script in an output to the kernel
live_outputs                  what lives behind outputs, and its end
widget_marks                  how outputs with widgets of ours are known again
*.js                          the scripts that draw charts, and ask the kernel
"""
