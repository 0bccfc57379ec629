"""What a schedule rents, in words: the same in command line and pages."""

from __future__ import annotations

from collections.abc import Iterator

from circinus.api.schemas.schedule import RentView, ScheduleView
from circinus.api.text import formats


def rent_lines(schedule: ScheduleView) -> list[str]:
    """Return the machines that are rented, what they cost, and how near that is to the least.

    Empty where no machine is rented.
    """
    return [] if schedule.rent is None else [*_sentences(schedule.rent)]


def _sentences(rent: RentView) -> Iterator[str]:
    machines = ", ".join(
        f"{len(each.machines)} of {'/'.join(filter(None, (each.tier, each.machine_type)))} at "
        f"{formats.dollars(each.price_usd_per_hour)}"
        for each in rent.machines
    )
    most = rent.most_usd_per_hour
    limit = "" if most is None else f" of at most {formats.dollars(most)}"
    calls = (
        f", calls {formats.dollars(rent.calls_usd_per_hour)}" if rent.calls_usd_per_hour else ""
    )
    yield (
        f"Rented machines: {machines or 'none'}{calls}; "
        f"together {formats.dollars(rent.usd_per_hour)}{limit}."
    )
    if not rent.serves_all:
        yield "Not all queries are served within the limits of machines and dollars."
    if rent.least_usd_per_hour is None:
        yield "The machines do not suffice for all queries, however they are used."
        return
    least = formats.dollars(rent.least_usd_per_hour)
    what = "The least for all queries is" if rent.proven else "All queries cost at least"
    more = "" if rent.gap is None else f"; this is {rent.gap:.1%} more"
    yield f"{what} {least}{more}."
