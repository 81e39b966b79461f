"""What a change would save: the tree of the cell's time, the replay with an edit, the rules (design.md 4b).

cell_tree        the wall time of the cell as one tree, down to what its steps computed
measured_costs   what a compiled call and a new iterator cost in this process
cell_model       the tree with all that is known of the cell
replay           the tree with edits: what remains of it, as a range
what_if          ``p.what_if``: a user's change to edits
numbers          the numbers that steer the rules
proposals        what a rule proposes, and what a user is told
cell_rules       rules that ask the tree: done too often, set up again, not compiled
input_rules      rules that ask why steps wait for their input
device_rules     rules that ask what devices compute and exchange
idle_rules       rules that ask why devices idle
compile_rules    rules on what is started piece by piece, and compiled again
op_rules         rules on loops of ops, threads, TF1's loops, recurrent layers
python_rules     rules on Python and what it runs one by one, between the steps and in them
again_rules      rules on what is traced, validated or made again and again
advise           every proposal with what it saves beside those before it, in order
"""
