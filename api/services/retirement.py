"""Taking queries out of service: on demand, or because their time is over."""

from __future__ import annotations

from collections.abc import Iterable

from api.phases import LIVE, Phase
from api.store.records import Move, QueryRecord
from api.store.store import Conflict, Store
from pipelines.clock import Clock


def undeploy(store: Store, query_id: str, *, clock: Clock) -> QueryRecord:
    """Retire a query and free its capacity; retiring it again changes nothing.

    Raises:
        NotFound: If there is none of that id.
        Conflict: If it is not planned yet, or has no plans.
    """
    retired = Move(
        query_id=query_id,
        expected=LIVE,
        to=Phase.RETIRED,
        at=clock.timestamp(),
        message="undeployed",
    )
    store.move(retired)
    record = store.query(query_id)
    if record.phase is not Phase.RETIRED:
        rule = "must be waiting, deploying or serving to be undeployed"
        raise Conflict("phase", rule, record.phase)
    return record


def retire_expired(store: Store, live: Iterable[QueryRecord], *, now: float) -> tuple[str, ...]:
    """Retire the queries that were served as long as they asked for; give their ids."""
    expired = [record.id for record in live if _is_over(record, now)]
    for query_id in expired:
        store.move(
            Move(
                query_id=query_id,
                expected=LIVE,
                to=Phase.RETIRED,
                at=now,
                message="its duration is over",
            )
        )
    return tuple(expired)


def _is_over(record: QueryRecord, now: float) -> bool:
    duration_s = record.spec.get("duration_s")
    served_since = record.entered(Phase.SERVING)
    if not isinstance(duration_s, int | float) or served_since is None:
        return False
    return now >= served_since + duration_s
