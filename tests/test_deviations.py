"""Every deviation from the papers is listed once, with its reason, and marked at the code."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "deviations.md"
CODE = ("api", "deploy", "pipelines", "planner", "profiler", "scheduler", "studies")
SUFFIXES = (".py", ".yaml")
KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
MARKER = re.compile(r"#\s*deviates\b:?\s*([^\s:]*)")
SPOKEN = re.compile(r"\bDeviations?(?::|, none\b)")
PARTS = ("The paper", "Here: ", "Why: ", "Measured: ")
SHORTEST_PART = 3


@cache
def sources() -> dict[str, str]:
    """Return the text of every shipped file that can hold a marker, by its path."""
    return {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for folder in CODE
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in SUFFIXES and "_pb2" not in path.name
    }


@cache
def markers() -> dict[str, list[str]]:
    """Return the places of each key that is marked at the code."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, text in sources().items():
        for number, line in enumerate(text.splitlines(), 1):
            for key in MARKER.findall(line):
                places[key].append(f"{path}:{number}")
    return places


@cache
def rows() -> tuple[tuple[str, str], ...]:
    """Return each key of the list with the text of its row."""
    return tuple(rows_of(PAGE.read_text(encoding="utf-8")))


def rows_of(page: str) -> Iterator[tuple[str, str]]:
    lists = page.partition("\n## ")[2]
    for item in re.findall(r"^- (.+?)(?=^- |^#|\Z)", lists, re.MULTILINE | re.DOTALL):
        text = " ".join(item.split())
        key = re.match(r"`([^`]*)`\. ", text)
        yield ("", text) if key is None else (key[1], text[key.end() :])


def parts_of(row: str) -> list[str]:
    """Return the text of each part of a row; of parts that it lacks, or in another order, none."""
    starts = [row.find(part) for part in PARTS]
    if starts[0] != 0 or any(first < 0 or first >= second for first, second in pairwise(starts)):
        return []
    ends = [*starts[1:], len(row)]
    return [
        row[start + len(part) : end].strip(" .")
        for part, start, end in zip(PARTS, starts, ends, strict=True)
    ]


def test_every_marker_has_a_row() -> None:
    listed = {key for key, _ in rows()}

    assert len(markers()) > 50
    assert {key: places for key, places in markers().items() if key not in listed} == {}


def test_every_row_has_a_marker_at_the_code() -> None:
    assert [key for key, _ in rows() if key not in markers()] == []


def test_no_key_has_two_rows() -> None:
    assert [key for key, count in Counter(key for key, _ in rows()).items() if count > 1] == []


def test_keys_are_words_joined_by_hyphens() -> None:
    keys = [*markers(), *(key for key, _ in rows())]

    assert [key for key in keys if not KEBAB.fullmatch(key)] == []


def test_a_row_has_what_the_paper_says_what_is_done_why_and_what_was_measured() -> None:
    short = {
        key: text
        for key, text in rows()
        if not (parts := parts_of(text)) or min(map(len, parts)) < SHORTEST_PART
    }

    assert short == {}


def test_a_file_that_speaks_of_deviations_marks_one() -> None:
    marked = {place.rpartition(":")[0] for places in markers().values() for place in places}

    assert [path for path, text in sources().items() if SPOKEN.search(text)] != []
    assert [p for p, text in sources().items() if SPOKEN.search(text) and p not in marked] == []


@pytest.mark.parametrize(
    "row",
    [
        "Here: a. Why: b. Measured: c.",
        "The paper: a. Why: b. Here: c. Measured: d.",
        "The paper (4.1): a. Here: b. Why: c.",
    ],
    ids=["no paper", "another order", "nothing measured"],
)
def test_a_row_that_lacks_a_part_is_noticed(row: str) -> None:
    assert parts_of(row) == []


def test_rows_are_read_over_several_lines_and_one_without_a_key_is_noticed() -> None:
    page = "# P\n\n- no row\n\n## G\n\n- `a-b`. The paper: x.\n  Here: y.\n- c. Here: z.\n\n## H\n"

    assert list(rows_of(page)) == [("a-b", "The paper: x. Here: y."), ("", "c. Here: z.")]
