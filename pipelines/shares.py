"""Shares of a machine come in steps (science page, section 2)."""

SHARE_STEP = 0.05
"""From one step to a whole machine."""
FULL_STEPS = round(1 / SHARE_STEP)
"""A whole machine in steps."""
