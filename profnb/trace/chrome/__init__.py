"""Chrome trace JSON to a Trace and back, whoever wrote it."""
