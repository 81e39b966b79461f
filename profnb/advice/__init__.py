"""What a change would save: the tree of the cell's time, and the replay of it with an edit (design.md 4b).

cell_tree        the wall time of the cell as one tree, down to what its steps computed
measured_costs   what a compiled call and a new iterator cost in this process
cell_model       the tree with all that is known of the cell
replay           the tree with edits: what remains of it, as a range
what_if          ``p.what_if``: a user's change to edits
"""
