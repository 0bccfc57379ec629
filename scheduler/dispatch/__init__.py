"""Matches waiting requests to running instances.

Pure decisions: given the requests that wait, the instances and what they are expected to take,
a dispatch policy says which request starts where now. The loop that acts on it lives in
`deploy`, so a simulation can drive the very same objects.
"""
