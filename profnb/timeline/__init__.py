"""The timeline: packed marks, the picture that needs no script, and the browser code."""
