"""Commands for Kubernetes clusters: plans by hand, Secrets of a release, routes on pods."""
