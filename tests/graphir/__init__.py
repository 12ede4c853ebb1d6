"""Tests of Graph IR."""
