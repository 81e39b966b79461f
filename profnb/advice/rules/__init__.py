"""The table of rules: each a question to the tree and the tables, a change, words, and an edit.

cell_rules      rules that ask the tree: done too often, set up again, not compiled
input_rules     rules that ask why steps wait for their input
device_rules    rules that ask what devices compute and exchange
idle_rules      rules that ask why devices idle
compile_rules   rules on what is started piece by piece, and compiled again
op_rules        rules on loops of ops, threads, TF1's loops, recurrent layers
python_rules    rules on Python and what it runs one by one, between the steps and in them
again_rules     rules on what is traced, validated or made again and again
"""
