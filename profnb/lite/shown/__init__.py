"""How a LiteRT result is said and shown.

lite_verdict   the answer in a sentence
section        models side by side, and two results
op_sections    layers and ops
"""
