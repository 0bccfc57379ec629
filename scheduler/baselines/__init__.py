"""Policies that others are measured against. Each looks at one plan per query: its cheapest."""
