"""The operator worker: a process that serves operators over gRPC, and its client.

A worker stands for a share of one machine of one tier. It says how it enforces that share, and
whether it emulates a slower machine by waiting.
"""
