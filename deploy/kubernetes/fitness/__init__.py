"""Whether a cluster has what Circinus needs before it is installed or runs there."""
