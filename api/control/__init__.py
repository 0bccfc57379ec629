"""Loops that keep the service's promises, and planning workers; imports `bootstrap` and below."""
