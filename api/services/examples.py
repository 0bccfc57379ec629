"""Examples that pipelines make or load, kept for a while: making them may take seconds."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from api.services.catalogue import Catalogue, offered
from pipelines import checks
from pipelines.dataset import Dataset
from pipelines.errors import InvalidInput

_KEPT = 8


class ExampleSource:
    """Gives data sets by pipeline, count and seed. Safe to share between threads."""

    def __init__(self, catalogue: Catalogue, *, limit: int) -> None:
        """Make a source.

        Args:
            catalogue: With the pipelines.
            limit: Most examples that a client may ask for.
        """
        self._catalogue = catalogue
        self._limit = limit
        self._kept: OrderedDict[tuple[str, int, int], Dataset] = OrderedDict()
        self._lock = Lock()

    def check(self, count: int, *, field: str = "examples") -> None:
        """Raise InvalidInput if a client may not ask for so many."""
        checks.require(1 <= count <= self._limit, field, f"must be 1 to {self._limit}", count)

    def examples(self, pipeline: str, count: int, seed: int) -> Dataset:
        """Give a data set.

        Raises:
            InvalidInput: If the pipeline is not offered, or the count is above the limit.
        """
        self.check(count)
        key = (pipeline, count, seed)
        with self._lock:
            if key not in self._kept:
                make = offered(self._catalogue, pipeline).examples
                if make is None:
                    raise InvalidInput.of("pipeline", "must bring examples", pipeline)
                self._kept[key] = make(count, seed)
            self._kept.move_to_end(key)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return self._kept[key]
