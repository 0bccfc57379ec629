"""Chooses among the plans of many queries, on the machines that exist.

A policy turns the live queries and their plans into a schedule: who is admitted, with which
plan, on which machines. Its one rule: the output of every policy passes the same validation,
which knows nothing of how the schedule was found.
"""
