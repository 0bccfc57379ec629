"""How late an event loop is: what has arrived waits so long until anybody looks at it."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from circinus.pipelines.clock import Clock

_EVERY_S, _LOOKS = 0.01, 10


@dataclass(slots=True, eq=False)
class LoopLag:
    """Measures at intervals how late the event loop runs a timer.

    The worst of the last tenth of a second counts: an admitted request should be in time.
    """

    clock: Clock
    _late_s: deque[float] = field(default_factory=lambda: deque([0.0], maxlen=_LOOKS), init=False)
    _due: float = field(default=0.0, init=False)
    _next: asyncio.TimerHandle | None = field(default=None, init=False)

    def start(self) -> None:
        """Begin to look, within the event loop."""
        now = self.clock.now()
        self._due = now + _EVERY_S
        self._next = asyncio.get_running_loop().call_later(_EVERY_S, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._next is not None:
            self._next.cancel()

    def seconds(self) -> float:
        """Return by how much the loop was recently late, or is by now."""
        return max(*self._late_s, self.clock.now() - self._due)

    def _look(self) -> None:
        self._late_s.append(max(self.clock.now() - self._due, 0.0))
        self.start()
