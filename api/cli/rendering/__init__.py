"""Views as people read them: tables, lines and live progress, none wider than 100 columns."""
