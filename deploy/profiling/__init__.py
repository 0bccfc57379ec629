"""Executors that run operators to measure them; imports `runtime` and `workers`."""
