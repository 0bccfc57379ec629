"""What several threads store at the same time, in one transaction: a commit waits for the disk.

Whoever has the turn stores for all who wait by then. The one rule: nobody hears of another's
fault. Where a transaction fails that was of several, each gets one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

from circinus.api.store.failures import DatabaseFailed

Asked = TypeVar("Asked")
Stored = TypeVar("Stored")


@dataclass(eq=False)
class Together(Generic[Asked, Stored]):
    """Stores things, each for a thread that waits for it.

    `store` takes several in the order of their coming and gives for each what its thread gets,
    raised if it is an error; or raises, and nothing is stored. It is called by one thread at a
    time.
    """

    store: Callable[[Sequence[Asked]], Sequence[Stored | Exception]]
    _turn: Lock = field(default_factory=Lock, init=False)
    _waiting: list[tuple[Asked, Future[Stored]]] = field(default_factory=list, init=False)

    def __call__(self, asked: Asked) -> Stored:
        """Return what is stored for one thing, or raise why it is not."""
        mine = Future[Stored]()
        self._waiting.append((asked, mine))
        with self._turn:
            if not mine.done():
                waiting, self._waiting = self._waiting, []
                self._store(waiting)
        return mine.result()

    def _store(self, waiting: Sequence[tuple[Asked, Future[Stored]]]) -> None:
        try:
            answers = self.store([asked for asked, _ in waiting])
        except DatabaseFailed as error:  # nobody's fault
            answers = [error] * len(waiting)
        except Exception as error:  # noqa: BLE001 - raised in the thread that asked
            if len(waiting) > 1:
                for each in waiting:
                    self._store([each])
                return
            answers = [error]
        for (_, told), answer in zip(waiting, answers, strict=True):
            if isinstance(answer, Exception):
                told.set_exception(answer)
            else:
                told.set_result(answer)
