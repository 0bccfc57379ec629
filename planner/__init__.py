"""Searches the plans of one query.

The planner proposes configurations, asks an `Evaluator` what they score and take, composes
every placement of a measured configuration, tightens allocations and keeps the Pareto set.
Its one rule: it knows an `Evaluator` only as a Protocol of `pipelines`, so the same search runs
on real operators, on a stored trace and on a function whose optimum is known.
"""
