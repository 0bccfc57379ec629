"""Chooses how many instances of each type to rent."""
