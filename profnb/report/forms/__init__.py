"""What a report is written as, from the value that ``content`` declares.

as_html    one HTML fragment
as_text    plain text for a terminal
as_data    plain values for programs, by the JSON Schema ``report.schema.json``
"""
