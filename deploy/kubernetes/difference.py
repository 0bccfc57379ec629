"""What has to change in a cluster so that it is as rendered. Pure.

An object agrees with what was rendered when everything that was rendered is in it: the server's
defaults and what other field managers own are not ours to compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from deploy.kubernetes.api import Object

_ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An object that differs.

    Attributes:
        key: `Kind/name`.
        fields: `path: is -> should be`, of those that differ; empty when it does not exist yet.
    """

    key: str
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What is to be done.

    Attributes:
        create: That do not exist.
        change: That exist and differ.
        prune: `Kind/name` that nobody wants.
        unchanged: Number of those that agree.
    """

    create: tuple[Change, ...]
    change: tuple[Change, ...]
    prune: tuple[str, ...]
    unchanged: int

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.create or self.change or self.prune)

    @property
    def to_apply(self) -> frozenset[str]:
        """The keys of what is to be written."""
        return frozenset(each.key for each in (*self.create, *self.change))


def key_of(document: Object) -> str:
    """Give `Kind/name`."""
    return f"{document['kind']}/{document['metadata']['name']}"


def difference(wanted: Iterable[Object], live: Mapping[str, Object]) -> Difference:
    """Give what has to change.

    Args:
        wanted: Objects as rendered.
        live: All objects of ours for the same queries, by key.
    """
    by_key = {key_of(document): document for document in wanted}
    changes = {
        key: tuple(_differences(document, live[key], ""))
        for key, document in by_key.items()
        if key in live
    }
    return Difference(
        create=tuple(Change(key=key) for key in by_key if key not in live),
        change=tuple(Change(key=key, fields=told) for key, told in changes.items() if told),
        prune=tuple(key for key in live if key not in by_key),
        unchanged=sum(not told for told in changes.values()),
    )


def _differences(wanted: object, live: object, path: str) -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(live, dict):
        for name, value in wanted.items():
            below = f"{path}.{name}" if path else str(name)
            if name not in live and value not in ({}, []):
                yield f"{below}: {_ABSENT} -> {_shown(value)}"
            elif name in live:
                yield from _differences(value, live[name], below)
    elif isinstance(wanted, list) and isinstance(live, list) and len(wanted) == len(live):
        for number, (value, there) in enumerate(zip(wanted, live, strict=True)):
            yield from _differences(value, there, f"{path}[{number}]")
    elif wanted != live:
        yield f"{path}: {_shown(live)} -> {_shown(wanted)}"


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
