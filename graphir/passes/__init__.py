"""Passes over Graph IR, one file each; `graphir.pipeline` lists them with their reasons."""
