"""Measures configurations with as few real runs as can be justified.

The profiler draws inputs stratum by stratum, runs operators on them, reuses what a shared prefix
already computed, and stops when a stopping rule says that more runs would be wasted. Its one
rule: whatever reaches disk, processes or the network comes in behind a Protocol.
"""
