"""The schedule on its machines: each is a box that the plans of queries fill, tier by tier.

Numbers distinguish queries, in the order of the schedule, and colours, which repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from circinus.api.drawing.svg import drawing, element, fitted, of_tier, title, words, wrapped
from circinus.api.schemas.schedule import AssignmentView, MachineShare, ScheduleView
from circinus.api.schemas.service import InfrastructureView, MachineTypeView, TierView
from circinus.api.text import formats

MOST_DRAWN = 400
"""Machines of a pool that are drawn; of more, those in use go first, and text counts the rest."""
_SIZES = ((8, 112, 96), (24, 80, 64), (96, 44, 46), (MOST_DRAWN, 24, 34))
"""Up to so many machines in a pool: their width and height in pixels."""
_GAP, _HEAD, _UNDER = 8, 24, 15
_BETWEEN = 28  # pixels between pools beside each other
_NARROWEST = 340  # pixels of a pool
_TEXT, _LINE = 16, 13  # pixels of a line of words above boxes, and in one
_FULL = 1 + 1e-9
_NUMBERED, _NAMED = 34, 70  # pixels of a box that has its number below, and more
_HATCH = {"width": 6, "height": 6, "patternUnits": "userSpaceOnUse"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """What a plan has of a machine."""

    number: int  # of its query, from 1
    of: AssignmentView
    share: float
    extra: bool

    def description(self, where: str) -> str:
        """Return it in words."""
        kind = ", extra replica" if self.extra else ""
        return f"{self.of.query_id}, plan {self.of.plan_id}: {self.share:.2g} of {where}{kind}"


@dataclass(slots=True, kw_only=True)
class _Box:
    """A machine."""

    name: str  # below the box
    where: str
    there: bool = True  # else it is gone, and the schedule follows within a moment
    pieces: list[_Piece] = field(default_factory=list)

    @property
    def used(self) -> float:
        return sum(piece.share for piece in self.pieces)

    @property
    def description(self) -> str:
        state = "" if self.there else ", gone"
        return f"{self.where}{state}: {self.used:.2f} in use, {max(0, 1 - self.used):.2f} free"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pool:
    """Machines that are alike: a tier, or those of one of its types."""

    name: str
    description: str
    boxes: Sequence[_Box]

    @property
    def words(self) -> str:
        return f"{self.name}: {self.description}"


def machines_svg(
    schedule: ScheduleView,
    infrastructure: InfrastructureView,
    width: int = 1080,
    link: str | None = None,
) -> str:
    """Return all tiers with their machines and what fills them; of a dedicated one, those in use.

    Tiers that are called have none.

    `link` is put before a query's id to lead somewhere from what it has; None: nothing leads
    anywhere.
    """
    pools = [pool for tier in infrastructure.tiers for pool in _pools(tier, schedule)]
    hatch = f"extra-{width}"
    line = element("path", d="M0 0V6", stroke="currentColor", stroke_width=2.4, opacity="0.6")
    pattern = element("pattern", line, id=hatch, patternTransform="rotate(45)", **_HATCH)
    pen = _Pen(hatch=hatch, link=link)
    parts = [element("defs", pattern)]
    left = top = high = 0.0
    for pool in pools:
        grid = _grid(pool, width)
        if left and left + grid.wide > width:
            left, top, high = 0.0, top + high, 0.0
        parts += pen.pool(pool, grid, left, top)
        left, high = left + grid.wide + _BETWEEN, max(high, grid.high)
    top += high
    if any(each.extras for each in schedule.assignments):
        parts += pen.key(top)
        top += _HEAD
    description = "; ".join(pool.words for pool in pools)
    return drawing("Machines and what fills them", description, (width, top), parts)


def swatch_svg(number: int) -> str:
    """Return the colour of a query, by its number from 1."""
    box = element("rect", x=1, y=1, width=14, height=14, rx=3, **of_tier(number - 1))
    return element("svg", box, class_="shape", viewBox="0 0 16 16", aria_hidden="true")


def _pools(tier: TierView, schedule: ScheduleView) -> Iterator[_Pool]:
    if tier.remote:
        return
    pieces = list(_pieces(tier.name, schedule.assignments))
    if tier.dedicated:
        yield _dedicated(tier, pieces)
        return
    first = 0
    for kind in tier.types or (tier,):
        name = None if isinstance(kind, TierView) else kind.name
        mine = [(at, piece) for at, piece in pieces if at.machine_type == name]
        yield _shared(tier, kind, first, mine)
        first += kind.machines


def _pieces(
    tier: str, assignments: Iterable[AssignmentView]
) -> Iterator[tuple[MachineShare, _Piece]]:
    for extra in (False, True):  # at the bottom what stays
        for number, each in enumerate(assignments, start=1):
            for at in each.extras if extra else each.machines:
                if at.tier == tier:
                    yield at, _Piece(number=number, of=each, share=at.share, extra=extra)


def _shared(
    tier: TierView,
    kind: TierView | MachineTypeView,
    first: int,
    pieces: Sequence[tuple[MachineShare, _Piece]],
) -> _Pool:
    name = tier.name if kind is tier else f"{tier.name}/{kind.name}"
    there = range(first, first + kind.machines)
    taken: dict[int, _Box] = {}
    for at, piece in pieces:
        box = _box(name, at.machine, there=at.machine in there)
        taken.setdefault(at.machine, box).pieces.append(piece)
    room = max(0, MOST_DRAWN - len(taken))
    empty = [n for n in there[: room + len(taken)] if n not in taken][:room]
    drawn = sorted([*sorted(taken)[:MOST_DRAWN], *empty])
    boxes = [taken.get(n) or _box(name, n) for n in drawn]
    used = sum(box.used for box in taken.values())
    part = f" ({used / kind.machines:.0%})" if kind.machines else ""
    description = (
        f"{used:.2f} of {_count(kind.machines)} in use{part}, "
        f"{formats.dollars(kind.price_usd_per_hour)} each{_marks(tier)}"
    )
    return _Pool(
        name=name, description=description + _left_out(kind.machines - len(boxes)), boxes=boxes
    )


def _box(pool: str, machine: int, *, there: bool = True) -> _Box:
    return _Box(name=f"machine {machine}", where=f"{pool} {machine}", there=there)


def _dedicated(tier: TierView, pieces: Sequence[tuple[MachineShare, _Piece]]) -> _Pool:
    taken: dict[tuple[int, int], _Box] = {}
    for at, piece in pieces:
        query = piece.of.query_id
        which = f" {at.machine}" if tier.machines > 1 else ""
        box = _Box(name=f"{tier.name}{which}", where=f"{tier.name}{which} of {query}")
        taken.setdefault((piece.number, at.machine), box).pieces.append(piece)
    queries = len({number for number, _ in taken})
    users = f"{queries} quer{'y uses' if queries == 1 else 'ies use'} theirs"
    description = f"{_count(tier.machines)} of its own for every query; {users}{_marks(tier)}"
    boxes = [taken[key] for key in sorted(taken)]
    description += _left_out(len(boxes) - MOST_DRAWN)
    return _Pool(name=tier.name, description=description, boxes=boxes[:MOST_DRAWN])


def _left_out(machines: int) -> str:
    return f"; {machines} more are not drawn" if machines > 0 else ""


def _count(machines: int) -> str:
    return f"{machines} machine{'' if machines == 1 else 's'}"


def _marks(tier: TierView) -> str:
    return ", speed emulated" if tier.emulated else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """Where a pool's boxes are."""

    wide: int  # of all, pixels
    box: tuple[int, int]  # width and height of each
    row: int  # boxes in one
    rows: int
    step: int  # pixels from a row to the next
    lines: Sequence[str]  # of words above

    @property
    def head(self) -> int:
        return _HEAD + _TEXT * len(self.lines) + 4

    @property
    def high(self) -> int:
        return self.head + self.rows * self.step + 14


def _grid(pool: _Pool, most: int) -> _Grid:
    count = len(pool.boxes)
    box = next(((w, h) for size, w, h in _SIZES if count <= size), _SIZES[-1][1:])
    wide = min(max(count * (box[0] + _GAP) - _GAP, _NARROWEST), most)
    row = (wide + _GAP) // (box[0] + _GAP)
    step = box[1] + (_UNDER if box[0] >= _NUMBERED else 0) + _GAP
    lines = wrapped(pool.description, wide)
    return _Grid(wide=wide, box=box, row=row, rows=-(-count // row), step=step, lines=lines)


@dataclass(slots=True, kw_only=True)
class _Pen:
    """Draws pools and what fills their machines."""

    hatch: str
    link: str | None
    linked: set[str] = field(default_factory=set)  # queries that a key leads to already

    def pool(self, pool: _Pool, grid: _Grid, left: float, top: float) -> Iterator[str]:
        """Yield the parts of a pool at a corner."""
        yield words(pool.name, left, top + 16, font_size=14, font_weight=700)
        for number, text in enumerate(grid.lines):
            yield words(text, left, top + 34 + _TEXT * number)
        for at, box in enumerate(pool.boxes):
            x = left + at % grid.row * (grid.box[0] + _GAP)
            yield from self._box(box, (x, top + grid.head + at // grid.row * grid.step), grid.box)

    def key(self, top: float) -> Iterator[str]:
        """Yield what hatching means."""
        line = {"stroke": "currentColor", "stroke_opacity": 0.5}
        yield element("rect", x=1, y=top, width=22, height=14, fill=f"url(#{self.hatch})", **line)
        yield words("extra replica: more requests come than planned", 31, top + 11)

    def _box(self, box: _Box, at: tuple[float, float], size: tuple[float, float]) -> Iterator[str]:
        (x, y), (wide, high) = at, size
        frame = {"fill": "currentColor", "fill_opacity": 0.04, "stroke": "currentColor"}
        dashes = None if box.there else "4 3"
        rect = {"x": x + 0.5, "y": y + 0.5, "width": wide - 1, "height": high - 1, "rx": 3}
        edge = {"stroke_opacity": 0.45, "stroke_dasharray": dashes}
        yield element("rect", title(box.description), class_="machine", **rect, **frame, **edge)
        bottom = y + high
        filled = 0.0
        for piece in box.pieces:
            share = min(piece.share, _FULL - filled)
            if share > 0:
                height = share * high
                bottom -= height
                filled += share
                yield self._piece(piece, box, (x, bottom), (wide, height))
        if wide >= _NUMBERED:
            name = fitted(box.name if wide > _NAMED else box.name.rpartition(" ")[2], wide, 11)
            yield words(name, x + wide / 2, y + high + 12, font_size=11, text_anchor="middle")

    def _piece(
        self, piece: _Piece, box: _Box, at: tuple[float, float], size: tuple[float, float]
    ) -> str:
        (x, y), (wide, high) = at, size
        rect = {"x": x + 1, "y": y + 0.5, "width": wide - 2, "height": max(high - 1, 1), "rx": 2}
        look = {"stroke_width": 1.2, **of_tier(piece.number - 1)}
        parts = [title(piece.description(box.where)), element("rect", **rect, **look)]
        if piece.extra:
            parts.append(element("rect", **rect, fill=f"url(#{self.hatch})"))
        parts += _labels(piece, at, size)
        query = piece.of.query_id
        attributes = {"class_": "extra slice" if piece.extra else "slice", "data_row": query}
        if self.link is None:
            return element("g", *parts, **attributes)
        # One stop for the key of each query, not one for each of its slices.
        stop = None if query not in self.linked else "-1"
        self.linked.add(query)
        return element(
            "a", *parts, href=self.link + quote(query, safe=""), tabindex=stop, **attributes
        )


def _labels(piece: _Piece, at: tuple[float, float], size: tuple[float, float]) -> Iterator[str]:
    """Yield what fits into a slice: the number, then the query, then the plan."""
    (x, y), (wide, high) = at, size
    name = str(piece.number)
    lines = [name]
    if wide > _NAMED:
        lines = [f"{name} {piece.of.query_id}", piece.of.plan_id]
    lines = lines[: int((high - 2) // _LINE)]
    if not lines and high >= 9:
        lines = [name]
    first = y + high / 2 - (len(lines) - 1) * _LINE / 2 + 4
    for at_line, text in enumerate(lines):
        attributes = {"text_anchor": "middle", "font_size": 10 if high > _LINE else 9}
        weight = 600 if at_line == 0 else None
        label = fitted(text, wide - 6, 11.5)  # some are bold
        yield words(label, x + wide / 2, first + at_line * _LINE, font_weight=weight, **attributes)
