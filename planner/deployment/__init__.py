"""Where a configuration may run and what it takes there: arithmetic; imports `pipelines` alone."""
