"""Commands of `circinus study`: measure and compare offline."""
