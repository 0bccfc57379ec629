"""The shared vocabulary: what everybody in the project talks about, and nothing else.

Pipelines and their operators, configurations, infrastructure, queries, plans, profiles, the pure
latency composition, and the Protocols through which the packages above meet. It imports nothing
else of the project.
"""
