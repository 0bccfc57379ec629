"""Adaptive orchestration: which deployment units of an endpoint get which part of its traffic."""
