"""Simulates requests to instances: drives the production policies, never a copy of them."""
