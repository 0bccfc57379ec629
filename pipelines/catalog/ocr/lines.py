"""The text on the pages: lines out of Python's own documentation, as `help()` prints it.

One rule: a line has only characters that every font draws and every engine may answer, so that
what a page says is exact. The lines are those of the Python that runs: another release may
have others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

_PROSE = re.compile(r"[A-Za-z(][A-Za-z0-9 ,.;:()-]*")
_FEWEST_WORDS = 5
"""Fewer are headings and ends of paragraphs."""


@cache
def all_lines() -> Sequence[str]:
    """Lines of running text, each once, in the order of the documentation."""
    from pydoc_data.topics import topics  # half a megabyte: only where pages are drawn

    lines = (line.strip() for topic in topics.values() for line in topic.splitlines())
    return tuple(dict.fromkeys(line for line in lines if _is_prose(line)))


def _is_prose(line: str) -> bool:
    one_spaced = "  " not in line
    return one_spaced and len(line.split()) >= _FEWEST_WORDS and bool(_PROSE.fullmatch(line))
