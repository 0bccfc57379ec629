"""What was measured, and the plans that it allows; imports `strategy` and the rooms below it."""
