"""How schedules compare with the optimum; imports `scheduler` and `pipelines`."""
