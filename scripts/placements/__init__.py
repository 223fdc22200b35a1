"""Graphs whose placement is recorded, by subject."""
