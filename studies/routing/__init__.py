"""Routing over deployment units whose capacity comes and goes."""
