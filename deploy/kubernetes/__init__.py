"""Kubernetes: what of a plan becomes objects of a cluster, and how the cluster is watched.

The only home of the Kubernetes client.
"""
