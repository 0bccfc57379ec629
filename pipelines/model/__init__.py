"""Pipelines as planners see them: graph, knobs, infrastructure, objectives, plans, profiles."""
