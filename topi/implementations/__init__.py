"""Fast implementations of contractions: computes over physical layouts with their schedules and cost models."""
