from __future__ import annotations

import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.instance_types import known_types, parse_catalogue

HEAD = "{date: 2025-01-31, provider: us, source: contract, types: "
GOOD = "{name: a.b, price_usd_per_hour: 1}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "prices must hold a mapping"),
        ("{typs: []}", "prices must have only the fields date, provider, source, types"),
        ("{types: []}", "types must be a list with an entry at least"),
        (HEAD + "[5]}", r"types\[0\] must be a mapping, got 5"),
        (HEAD + "[{name: a}]}", r"types\[0\].price_usd_per_hour must be given"),
        (f"{{types: [{GOOD}]}}", r"types\[0\].date must be given"),
        (HEAD + "[{name: a, cost: 1}]}", r"types\[0\] must have only the fields name, price_usd"),
        (HEAD + "[{name: a, price_usd_per_hour: x}]}", "price_usd_per_hour must be a number"),
        (HEAD + "[{name: a, price_usd_per_hour: true}]}", "price_usd_per_hour must be a number"),
        (HEAD + "[{name: a, price_usd_per_hour: -1}]}", r"types\[0\].price_usd_per_hour must be"),
        (HEAD + "[{name: a, price_usd_per_hour: .nan}]}", "price_usd_per_hour must be from 0"),
        (HEAD + "[{name: 5, price_usd_per_hour: 1}]}", r"types\[0\].name must be text, got 5"),
        (HEAD + "[{name: a b, price_usd_per_hour: 1}]}", "name must start with a letter"),
        (HEAD + "[{name: a, price_usd_per_hour: 1, memory_gb: 0}]}", "memory_gb must be finite"),
        (HEAD + "[{name: a, price_usd_per_hour: 1, date: soon}]}", "date must be a date, as"),
        (HEAD + "[{name: a, price_usd_per_hour: 1, accelerator: 2}]}", "accelerator must be text"),
        (HEAD + f"[{GOOD}, {GOOD}]}}", "name of a type must not repeat, got 'a.b'"),
    ],
)
def test_catalogues_that_make_no_sense_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_catalogue(text.encode())


def test_what_holds_for_all_may_be_said_once_and_a_type_may_differ() -> None:
    entry = "{name: c, price_usd_per_hour: 0, date: 2024-06-30, accelerator: T4, memory_gb: 16}"
    read = parse_catalogue((HEAD + f"[{GOOD}, {entry}]}}").encode())
    assert [*read] == ["a.b", "c"]
    assert (read["a.b"].date, read["a.b"].source) == ("2025-01-31", "contract")
    assert (read["c"].date, read["c"].accelerator, read["c"].memory_gb) == ("2024-06-30", "T4", 16)


def test_the_built_in_catalogue_has_a_price_a_date_and_a_source_for_each() -> None:
    assert len(known_types()) >= 10
    assert all(each.price_usd_per_hour > 0 and each.source for each in known_types().values())
