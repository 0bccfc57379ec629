"""Complete measurements of a pipeline, which the other studies replay; imports `profiler`."""
