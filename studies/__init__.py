"""Offline comparisons, a room per question and one writer for all; imports all but `api`."""
