"""Pipelines that run: functions, metrics, calls of endpoints, and facts about their code."""
