"""Measures configurations with as few real runs as can be justified.

Whatever reaches disk, processes or the network comes in behind a Protocol.
"""
