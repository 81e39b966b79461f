"""The page around the sections.

report, text, step_chart, page  the report as a value; its words; its chart; one offline file
forms/                          what it is written as: HTML, text, plain values
notes, ranking, advice          what is missing and why; which rules speak; how advice looks
frontend, controls              what to show where; live widgets
running/                        what is shown while code runs: how far it is
doing/                          code to copy; the line that measures a change
notebook_file                   repair saved notebooks
*.js                            the script that upgrades a report in place
"""
