"""Which waiting request starts where now: pure decisions, for live loops and simulations alike."""
