"""Plans as Compose files: may import what a machine is of `kubernetes`, runtime and workers."""
