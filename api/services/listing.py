"""Listing queries a page at a time, newest first."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass

from api.phases import Phase
from api.store.records import QueryRecord
from api.store.store import Store
from pipelines.errors import InvalidInput

LARGEST_PAGE = 200
_MARK = "before:"
_LARGEST_SERIAL = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some queries.

    Attributes:
        records: Newest first.
        next_cursor: For the page after; None: this is the last.
    """

    records: tuple[QueryRecord, ...]
    next_cursor: str | None


def page_of(
    store: Store,
    *,
    limit: int,
    cursor: str | None,
    phase: Phase | None,
    tenant: str | None = None,
    key_prefix: str | None = None,
) -> Page:
    """Give a page of queries.

    Args:
        store: With the queries.
        limit: Most to give, from 1 to `LARGEST_PAGE`.
        cursor: Of the page before; None: from the newest.
        phase: Only those in it; None: any.
        tenant: Only this one's queries; None: anybody's.
        key_prefix: Only those whose idempotency key begins so; None: any.

    Raises:
        InvalidInput: If the cursor is none that a page gave.
    """
    before = None if cursor is None else _decoded(cursor)
    phases = None if phase is None else frozenset({phase})
    # One more than asked for tells whether there is a page after this one.
    records = store.queries(
        limit=limit + 1, before=before, phases=phases, tenant=tenant, key_prefix=key_prefix
    )
    more = len(records) > limit
    shown = records[:limit]
    return Page(records=shown, next_cursor=_encoded(shown[-1].serial) if more else None)


def all_in(store: Store, phases: frozenset[Phase]) -> Iterator[QueryRecord]:
    """Give every query in one of the phases, newest first."""
    before: int | None = None
    while records := store.queries(limit=LARGEST_PAGE, before=before, phases=phases):
        yield from records
        before = records[-1].serial


def _encoded(serial: int) -> str:
    return base64.urlsafe_b64encode(f"{_MARK}{serial}".encode()).decode("ascii").rstrip("=")


def _decoded(cursor: str) -> int:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
        serial = int(text.removeprefix(_MARK))
    except (ValueError, binascii.Error) as error:
        raise InvalidInput.of("cursor", "must be a next_cursor of a page", cursor) from error
    if not text.startswith(_MARK) or not 0 <= serial <= _LARGEST_SERIAL:
        raise InvalidInput.of("cursor", "must be a next_cursor of a page", cursor)
    return serial
