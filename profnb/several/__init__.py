"""Several traces at once: hosts of one capture (fleets), running processes, many traces to a row each."""
