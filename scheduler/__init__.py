"""Chooses among the plans of many queries, on the machines that exist; imports `pipelines`.

Its one rule: what every policy gives passes the same validation, which knows nothing of policies.
"""
