"""Measuring: engines in processes of their own, probes of what the machine can do, and the floor of a model."""
