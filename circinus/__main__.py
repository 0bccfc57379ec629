"""The command line: the console script `circinus`, and `python -m circinus` without it."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; an interrupt ends it as one, also while it is being imported."""
    try:
        from circinus.api.cli import main as run  # seconds: what imports this waits for none

        run()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        raise SystemExit(130) from None


if __name__ == "__main__":  # planning workers import this module again
    main()
