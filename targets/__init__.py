"""The backends: one folder each, and what every one of them shares."""
