"""What a change would save: the tree of the cell's time, the replay with an edit, the rules (design.md 4b).

cell_tree        the wall time of the cell as one tree, down to what its steps computed
measured_costs   what a compiled call and a new iterator cost in this process
cell_model       the tree with all that is known of the cell
replay           the tree with edits: what remains of it, as a range
what_if          ``p.what_if``: a user's change to edits
numbers          the numbers that steer the rules
proposals        what a rule proposes, and what a user is told
rules/           the table of rules
advise           every proposal with what it saves beside those before it, in order
"""
