"""Everything that turns a problem into a schedule, by name; imports `compiled` and `ilp`."""
