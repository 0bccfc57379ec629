"""Plans as objects of a cluster, and how it is watched; the Kubernetes client's only home."""
