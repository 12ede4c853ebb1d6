"""Trained models that the tests run, each with inputs that mean something."""
