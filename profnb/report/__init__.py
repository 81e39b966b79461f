"""The page around the sections.

report                  a report as a value, and as HTML, plain text, an offline page
result                  the forms that every result has; it shows itself in a notebook
build                   decide all that it shows
text                    its words and figures
cell_picture            the tree of the cell: a sentence, the first picture, and a table
step_chart              the chart of the steps
notes, advice           what is missing and why; how advice looks
as_data                 plain values for programs, by the JSON Schema in report.schema.json
frontend                what to show where; live controls
progress                what is shown while code runs, in a notebook and in a terminal: how far it is
notebook_file           repair saved notebooks
*.js                    the script that upgrades a report in place
"""
