"""What a reader does next.

code_pieces    what of an advice's words is code, and what of that is to be written
again          the line that measures a change
"""
