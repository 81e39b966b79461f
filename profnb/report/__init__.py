"""How it looks: values in, figures, HTML and text out."""
