"""The operator library: one op, one file with its compute, schedules, layouts, reference and cases."""
