"""`circinus pool`: the mix of machine types that a query is served by."""

from __future__ import annotations

from typing import Annotated

from typer import Argument

from circinus.api.cli.options import QueryId, pairs
from circinus.api.client import Client
from circinus.api.schemas.pools import PoolView
from circinus.api.text import formats
from circinus.api.text.screen import Screen
from circinus.pipelines.errors import InvalidInput

_FORM = "TIER/TYPE=N"
_RULE = f"must be {_FORM}, each type once"


def apply(
    screen: Screen,
    client: Client,
    query_id: QueryId,
    slices: Annotated[
        list[str],
        Argument(metavar=f"{_FORM}...", help="Slices of a machine type, of the plan's share."),
    ],
    follow: Annotated[bool, "Choose it anew, and change it, when requests change."] = False,
) -> None:
    """Let a query be served by so many slices of machine types; refused if they do not fit.

    A tier that is not named is left to the plan. New instances serve before old ones end.
    """
    wanted: dict[str, dict[str, int]] = {}
    for name, number in pairs(_FORM, slices, _RULE).items():
        tier, _, kind = name.partition("/")
        if not (tier and kind) or not (number.isascii() and number.isdecimal()):
            raise InvalidInput.of(_FORM, _RULE, f"{name}={number}")
        wanted.setdefault(tier, {})[kind] = int(number[:12])
    _show(screen, client.set_pool(query_id, wanted, follow=follow))


def show(screen: Screen, client: Client, query_id: QueryId) -> None:
    """Show the mix of machine types of a query, and what is missing of it."""
    _show(screen, client.pool(query_id))


def drop(screen: Screen, client: Client, query_id: QueryId) -> None:
    """Let a query be served by its plan's own replicas again."""
    found = client.drop_pool(query_id)
    screen.show(f"{query_id}: served by its plan's own replicas", document=found)


def _show(screen: Screen, found: PoolView) -> None:
    counts = [f"{t}/{k}={n}" for t, kinds in found.slices.items() for k, n in kinds.items() if n]
    follows = ", follows the requests" if found.follow else ""
    lines = [f"{found.query_id}: {' '.join(counts)}, {found.state}{follows}"]
    if found.missing is not None:
        lines.append(f"missing: {found.missing}")
    if found.cost_usd_per_hour is not None:
        cost = formats.dollars(found.cost_usd_per_hour)
        lines.append(f"now on {', '.join(map(formats.machine, found.machines))}, {cost}")
    screen.show("\n".join(lines), document=found)
