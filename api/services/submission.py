"""Taking a query in: checked, stored, queued; planning happens elsewhere."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from hashlib import blake2b

from api.phases import Phase
from api.services.catalogue import Catalogue, offered
from api.services.examples import ExampleSource
from api.store.records import JsonObject, NewQuery, QueryRecord
from api.store.store import Store
from deploy.methods import parts_of
from pipelines.clock import Clock
from pipelines.errors import Fault, InvalidInput, Unavailable
from pipelines.fitting import fitted
from pipelines.infrastructure import Infrastructure
from pipelines.query import Query

_LONGEST_KEY = 200
_RETRY_AFTER_S = 5.0


class QueueFull(Unavailable):
    """More queries wait for planning than the operator allows."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"{limit} queries wait for planning already", retry_after_s=_RETRY_AFTER_S
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What a client asks for, its values checked already.

    Attributes:
        query: What is asked for, and how it is planned.
        examples: Number of examples to profile on; None: none were asked for.
        spec: The whole request as a document, defaults filled in.
        local_paths: Fields that name files of the client's machine; a service reads none.
        idempotency_key: Of the client's choice; None: every submission is a new query.
        tenant: Whose it is; empty: nobody's.
    """

    query: Query
    examples: int | None
    spec: JsonObject
    local_paths: JsonObject
    idempotency_key: str | None = None
    tenant: str = ""

    def __post_init__(self) -> None:
        key = self.idempotency_key
        if key is not None and not (0 < len(key) <= _LONGEST_KEY and key.isprintable()):
            rule = f"must have 1 to {_LONGEST_KEY} printable characters"
            raise InvalidInput.of("Idempotency-Key", rule, key)
        if self.local_paths:
            rule = "must be left out: a service reads no files, name a number of examples"
            raise InvalidInput(
                [Fault.of(field, rule, value) for field, value in self.local_paths.items()]
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """Takes queries in. Safe to share between threads.

    Attributes:
        store: Where they go.
        catalogue: The pipelines offered.
        examples: Of the pipelines.
        infrastructure: Planned for.
        clock: Says when.
        queue_limit: Most queries that may wait for planning.
    """

    store: Store
    catalogue: Catalogue
    examples: ExampleSource
    infrastructure: Infrastructure
    clock: Clock
    queue_limit: int

    def submit(self, submission: Submission) -> tuple[QueryRecord, bool]:
        """Queue a query; give its record and whether it is new.

        How it is planned is stored with it: a service that is told otherwise later plans it so
        all the same.

        Raises:
            InvalidInput: If the pipeline is not offered, too many examples are asked for, or the
                restrictions do not fit pipeline and infrastructure.
            Conflict: If the idempotency key came with another query before.
            QueueFull: If too many wait already.
        """
        self.examples.check(submission.examples or 0, field="data.examples")
        pipeline = offered(self.catalogue, submission.query.pipeline)
        fitted(submission.query, pipeline.graph, self.infrastructure)
        if self.store.count(frozenset({Phase.QUEUED})) >= self.queue_limit:
            raise QueueFull(self.queue_limit)
        return self.store.submit(
            NewQuery(
                id=f"q-{secrets.token_hex(6)}",
                spec={**submission.spec, "planning": parts_of(submission.query.planning)},
                # As it came: sent again to a service that plans otherwise, it is the same query.
                fingerprint=fingerprint(submission.spec),
                idempotency_key=submission.idempotency_key,
                at=self.clock.timestamp(),
                tenant=submission.tenant,
            )
        )


def fingerprint(spec: JsonObject) -> str:
    """Give a hash that is equal for equal documents, whatever the order of their fields."""
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=16).hexdigest()
