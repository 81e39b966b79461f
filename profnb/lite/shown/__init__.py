"""How a LiteRT result is said and shown.

verdict        the answer in a sentence
section        models side by side, and two results
op_sections    layers and ops
"""
