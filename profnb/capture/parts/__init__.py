"""Where the whole wall time of the captured code went: a clock of parts, and what tells it what runs."""
