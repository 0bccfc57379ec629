"""The book of queries is what the service says, page by page, and what was done since."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.api.operator.queries import KnownQuery, QueryBook
from circinus.api.phases import UNFINISHED, QueryPhase
from circinus.api.query_file import query_of
from circinus.pipelines.errors import Unavailable
from tests.api.operator.fake_cluster import SPEC
from tests.api.operator.fake_service import FakeService


def service_with(*keys: str, page_size: int = 200) -> FakeService:
    service = FakeService(page_size=page_size)
    for key in keys:
        service.submit(query_of(SPEC), idempotency_key=key)
    return service


def ids(book: QueryBook, uid: str) -> list[str]:
    return [query.id for query in book.of(uid)]


def test_a_service_that_does_not_answer_leaves_what_was_known() -> None:
    service = service_with("u-1/1")
    book = QueryBook(service=service)
    book.read()
    service.down = True
    with pytest.raises(Unavailable):
        book.read()
    assert ids(book, "u-1") == ["q-1"]


@pytest.mark.parametrize("page_size", [1, 2, 3, 200])
def test_queries_are_found_on_all_pages_newest_first(page_size: int) -> None:
    service = service_with("u-1/1", "u-2/1", "other", "u-1/2", page_size=page_size)
    book = QueryBook(service=service)
    assert book.read() == {"u-1", "u-2"}
    assert ids(book, "u-1") == ["q-4", "q-1"]
    assert ids(book, "u-10") == []


def test_only_objects_whose_queries_changed_are_told() -> None:
    service = service_with("u-1/1", "u-2/1")
    book = QueryBook(service=service)
    book.read()
    assert book.read() == frozenset()
    service.move("q-1", QueryPhase.PLANNING)
    assert book.read() == {"u-1"}
    service.move("q-2", QueryPhase.FAILED)
    assert book.read() == {"u-2"}
    assert ids(book, "u-2") == []


def test_what_is_submitted_while_the_service_is_read_is_not_lost() -> None:
    service = service_with("u-1/1", "u-1/2", page_size=1)
    book = QueryBook(service=service)
    pages = service.call

    def slow(*call: Any, **options: Any) -> object:  # noqa: ANN401 - handed on
        if len(service.queries) == 2:  # between two pages
            book.submit(query_of(SPEC), "u-1/3")
            book.stop(replace(known(service, "q-1"), phase=QueryPhase.QUEUED))
        return pages(*call, **options)

    service.call = slow  # type: ignore[method-assign,assignment]
    book.read()
    assert ids(book, "u-1") == ["q-3", "q-2"]


def known(service: FakeService, query_id: str) -> KnownQuery:
    return KnownQuery.of(service.queries[query_id])


def test_equal_queries_are_kept_once_however_often_pages_are_read() -> None:
    service = service_with("u-1/1")
    book = QueryBook(service=service)
    book.read()
    (first,) = book.of("u-1")
    book.read()
    assert book.of("u-1")[0] is first


@pytest.mark.parametrize("phase", sorted(frozenset(QueryPhase) - UNFINISHED))
def test_what_ended_is_not_stopped(phase: QueryPhase) -> None:
    service = service_with("u-1/1")
    service.move("q-1", phase)
    service.calls.clear()
    assert not QueryBook(service=service).stop(known(service, "q-1"))
    assert service.calls == []


@given(
    st.lists(
        st.tuples(st.sampled_from(["submit", "read", *QueryPhase]), st.integers(1, 3)),
        max_size=30,
    ),
    st.integers(1, 4),
)
def test_after_a_reading_the_book_is_what_the_service_says(
    steps: list[tuple[str, int]], page_size: int
) -> None:
    service = FakeService(page_size=page_size)
    book = QueryBook(service=service)
    for step, number in steps:
        if step == "submit":
            generation = len(service.queries)
            book.submit(query_of(SPEC), f"u-{number}/{generation}")
        elif step == "read":
            book.read()
        elif (query_id := f"q-{number}") in service.queries:
            service.move(query_id, QueryPhase(step))
    book.read()
    for number in (1, 2, 3):
        said = [
            query.id
            for query in reversed(service.queries.values())
            if str(query.idempotency_key).startswith(f"u-{number}/") and query.phase in UNFINISHED
        ]
        assert ids(book, f"u-{number}") == said
