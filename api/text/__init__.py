"""Figures, tables and lines for people, alike in command line, library, demo, pages, pictures."""
