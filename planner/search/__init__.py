"""The loop over strategy, measuring and plans, limits and bill; imports all but `answers`."""
