"""`python -m circinus`: the command line without its console script."""

from __future__ import annotations

from circinus.api.cli import main

if __name__ == "__main__":  # planning workers import this module again
    main()
