"""A scheduling problem as arrays, and whether plans fit machines; imports `problem`."""
