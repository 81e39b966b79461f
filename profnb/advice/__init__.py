"""What a change would save: the tree of the cell with an edit, replayed; the table of rules (design.md 4b).

cell_model       the tree with all that is known of the cell
replay           the tree with edits: what remains of it, as a range
what_if          ``p.what_if``: a user's change to edits
proposals        what a rule proposes, and what a user is told
rules/           the table of rules
advise           every proposal with what it saves beside those before it, in order
"""
