"""Tests of the passes from blocks to the flat form."""
