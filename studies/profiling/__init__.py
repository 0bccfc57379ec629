"""What stopping rules and orders of inputs are worth; imports `profiler` and `pipelines`."""
