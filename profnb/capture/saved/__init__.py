"""All that a capture saw besides the trace, to a file beside it and back.

sidecar    the file and back; how much is kept at most, and what must hold between the fields
codec      dataclasses to plain JSON values and back
"""
