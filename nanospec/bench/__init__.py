"""Measurements: `python -m nanospec.bench`."""
