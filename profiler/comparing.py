"""What a second run of an operator on equal inputs shows: that it draws, or that it remembers.

An operator that answers differently draws, though it is not declared. Where its first run with new
settings is made twice to be warm, that costs nothing. Besides, the operators that run for one
measurement in `_EVERY` run once more, until `MOST_COMPARED` such measurements were made; one that
is paid by the call at most once.

An operator that answers more quickly what it has met before remembers it. Requests bring new
inputs, so the first run of each counts. An operator is suspected where an input takes much longer
than one that was run twice; then it is run on that input again. Slow moments of the machine decide
nothing: it has to be quicker on most of the inputs that were new to it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import fmean
from threading import Lock

from circinus.pipelines.model.operators import Operator
from circinus.profiler.execution import Completed

_EVERY = 5
MOST_COMPARED = 30
"""With 30, an operator whose runs differ from the usual one in twenty is noticed with 95 %: a pair
differs in 9.75 %, and 0.9025 ** 30 is 4.6 %. They cost a fifth of the first 150 measurements."""


_QUICKER = 0.5  # of the seconds of a first run, which a repeat takes at most
_LEAST_S = 0.001  # that it saves: less is the machine's noise
_SURE = 2  # inputs whose repeats were quicker, at least
_PLAIN = 5  # new inputs after which an operator that was quick on as many is not watched any more
Place = tuple[str, int]
"""The fingerprint of an operator under its settings, and the index of an input."""


@dataclass(slots=True)
class Comparisons:
    """Facts about the operators of one version of a pipeline. Threads may share it."""

    most: int = MOST_COMPARED  # measurements whose operators run once more
    alike: set[str] = field(default_factory=set)  # operators that answered alike
    unlike: set[str] = field(default_factory=set)  # those observed to draw

    def needs_another(self, operator: Operator, done: Completed) -> bool:
        """Return whether it has to run once more, after a run that is compared."""
        name = operator.name
        if operator.spec.draws or done.varies is not None or name in self.unlike:
            return False
        known = name in self.alike
        self.alike.add(name)
        return not (known and operator.spec.calls)

    def learn(self, operator: Operator, done: Completed) -> bool:
        """Record a run; return whether a second one differed, of an operator not declared to."""
        if done.varies is None or operator.spec.draws:
            return False
        (self.unlike if done.varies else self.alike).add(operator.name)
        return done.varies

    def is_compared(self, number: int) -> bool:
        """Return whether operators that run for the measurement of a number are compared."""
        # deviates: second-runs
        return number % _EVERY == 0 and number < _EVERY * self.most


@dataclass(slots=True)
class RememberedInputs:
    """Facts about the operators of a pipeline. Threads may share it."""

    _quick_s: dict[str, float] = field(default_factory=dict)  # by fingerprint, of a known input
    _met: Counter[str] = field(default_factory=Counter)  # operator -> inputs it remembered
    # operator -> new inputs on which it was as quick as on known ones, or as slow the second time
    _alike: Counter[str] = field(default_factory=Counter)
    # operator -> index of an input -> the fingerprint under which it was new
    _new: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    _plain: set[str] = field(default_factory=set)  # operators that remember nothing
    # operator -> content of its inputs -> seconds that remembering saves, and waits among them
    _saved: dict[str, dict[str, tuple[float, float]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _early: dict[str, set[Place]] = field(default_factory=lambda: defaultdict(set))
    _lock: Lock = field(default_factory=Lock)

    @property
    def remembering(self) -> tuple[str, ...]:
        """The operators that answer more quickly what they have met before, in order."""
        known = self._met.items()
        return tuple(sorted(n for n, met in known if met >= max(_SURE, self._alike[n] + 1)))

    def concerns(self, name: str, place: Place, done: Completed) -> bool:
        """Return whether it takes the content of its inputs to identify a run."""
        if name in self._plain or done.used.calls:
            return False
        with self._lock:
            self._new[name].setdefault(place[1], place[0])
            if name in self.remembering:
                return True
            if done.first_s is not None:
                self._quick_s[place[0]] = done.seconds
                if _quicker(done.seconds, done.first_s):  # it loaded something, or remembers
                    self._early[name].add(place)
                return False
            quick_s = self._quick_s.get(place[0])
            if quick_s is None:
                return False
            suspect = _quicker(quick_s, done.seconds)
            if not suspect:
                self._note_alike(name, place)
            return suspect

    def learn(
        self, name: str, place: Place, content: str, first: Completed, again: Completed
    ) -> None:
        """Compare two runs on the same inputs, of which the second may have been remembered."""
        with self._lock:
            if _quicker(again.seconds, first.seconds):
                self._met[name] += 1
                saved = first.seconds - again.seconds, first.waited_s - again.waited_s
                self._saved[name].setdefault(content, saved)
            elif self._met[name] < _SURE:
                self._plain.add(name)
            else:
                self._note_alike(name, place)

    def _note_alike(self, name: str, place: Place) -> None:
        if self._new[name].get(place[1]) != place[0]:  # met under other settings: it may know it
            return
        self._alike[name] += 1
        if self._alike[name] >= max(_PLAIN, self._met[name]):
            self._plain.add(name)

    def counted(self, name: str, content: str, done: Completed, again: Completed) -> Completed:
        """Return a run with the seconds of a first one on its inputs; `again` was made after it.

        One that was no first one, or loaded something, takes what remembering saves besides: of
        that input, else of others on average.
        """
        fresh = done.first_s is None and _quicker(again.seconds, done.seconds)
        if name not in self.remembering or fresh:
            return done
        with self._lock:
            known = self._saved[name]
            saved = [known[content]] if content in known else list(known.values())
        seconds, waited_s = (fmean(each) for each in zip(*saved, strict=True))
        return replace(
            done,
            seconds=again.seconds + seconds,
            waited_s=max(again.waited_s + waited_s, 0.0),
        )

    def early(self) -> Iterable[tuple[Place, float, float]]:
        """Yield, once, what was taken for a first run before it was known: add these seconds."""
        for name in self.remembering:
            with self._lock:
                places, known = self._early.pop(name, set()), list(self._saved[name].values())
            seconds, waited_s = (fmean(each) for each in zip(*known, strict=True))
            yield from ((place, seconds, waited_s) for place in sorted(places))


def _quicker(again_s: float, first_s: float) -> bool:
    return again_s <= _QUICKER * first_s and first_s - again_s >= _LEAST_S
