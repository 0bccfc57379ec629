"""Under which key a query was submitted, over every kind of database."""

from __future__ import annotations

from sqlalchemy import Engine

from circinus.api.store.history import SqlKeys
from circinus.api.store.records import NewQuery
from circinus.api.store.store import Store


def test_a_query_has_the_key_that_it_came_with_and_others_have_none(engine: Engine) -> None:
    store, keys = Store(engine), SqlKeys(engine)
    for query_id, key in (("q-1", "uid/1"), ("q-2", None)):
        store.submit(NewQuery(id=query_id, spec={}, fingerprint="", idempotency_key=key, at=0.0))
    assert [keys.key_of(query_id) for query_id in ("q-1", "q-2", "q-3")] == ["uid/1", None, None]
