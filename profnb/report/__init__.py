"""The page around the sections.

report, content           a study to its report, as a value; what it shows, decided
lead, text, step_chart    its first sentence; its words; its chart
cell_words                the sentence of the whole cell
notes, advice             what is missing and why; how advice looks
forms/, page              what it is written as: HTML, text, plain values; one offline file
frontend, controls        what to show where; live widgets
paired                    two timelines under a cell
running/                  what is shown while code runs: how far it is
doing/                    code to copy; the line that measures a change
notebook_file             repair saved notebooks
script, *.js              the script that upgrades a report in place
"""
