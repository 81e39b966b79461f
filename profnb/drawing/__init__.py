"""What a section is drawn with: the palette, a section's value, figures, the door to plotly."""
