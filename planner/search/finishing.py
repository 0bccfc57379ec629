"""What a search measures once the cheapest plan is known, to know the front, and what bounds that.

Limits say what planning may cost at most; nobody who has the cheapest plan expects to pay them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

_MOST = 100  # measurements of configurations that may belong to the front
_OWN_PART = 10  # of the response time, what choosing these may take beside running operators
_CALLS = 2.0  # times what calls cost until then, that they may cost in all


@dataclass(slots=True)
class Finishing:
    """How far it is."""

    because: str = ""  # why the search ended, in words; empty: it has not, or found nothing more
    _calls_usd: float | None = None  # what calls had cost when it began; None: it has not
    _own_s: float = 0.0  # what other work than running operators had taken then
    _made: int = 0  # measurements

    @property
    def has_begun(self) -> bool:
        """Whether the cheapest plan is no longer searched for."""
        return self._calls_usd is not None

    def begin(self, *, calls_usd: float, own_s: float, because: str = "") -> None:
        """Go on to the front; empty: nothing else was worth measuring."""
        self._calls_usd, self._own_s, self.because = calls_usd, own_s, because

    def may_go_on(self, *, calls_usd: float, own_s: float, response_s: float | None) -> bool:
        """Return whether more may be measured for the front, and note why not."""
        before = self._calls_usd or 0.0
        if calls_usd > _CALLS * before:
            self.because = f"calls for the front have cost as much as those before, ${before:.4f}"
            return False
        if self._made >= _MOST or own_s - self._own_s > (response_s or inf) / _OWN_PART:
            self.because = "what else there is of the front takes long to choose"
            return False
        return True

    def make(self, measurements: int) -> None:
        """Count measurements for the front."""
        self._made += measurements
