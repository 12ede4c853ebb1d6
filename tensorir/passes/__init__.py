"""Passes that lower a scheduled function to the flat form that code generators read; the list is in `pipeline`."""
