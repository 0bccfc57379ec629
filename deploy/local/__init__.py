"""Instances as processes of this machine, with cgroups; imports `runtime` and `workers`."""
