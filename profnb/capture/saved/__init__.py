"""What a capture saw besides the trace, to a file beside it and back.

sidecar    the file and back
codec      dataclasses to plain JSON values and back
limits     how much is kept at most, and what must hold between the fields
"""
