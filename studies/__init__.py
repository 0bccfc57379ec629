"""Offline comparisons, a file per question.

A study may use everything below it, names the baselines it compares with, and returns a table
that it can also write to a folder. Nothing that is shipped to users depends on a baseline.
"""
