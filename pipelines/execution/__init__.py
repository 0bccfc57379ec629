"""Pipelines that run: functions, metrics, calls of endpoints, and what is known of their code."""
