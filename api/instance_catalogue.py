"""Types of instance and their prices: those that come with the project, and files of users."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from circinus.api.query_file import read_document
from circinus.api.schemas.faults import checked
from circinus.api.schemas.pools import InstanceCatalogue, PricedType

_OURS = Path(__file__).with_name("instance_types.yaml")


def known_prices(files: Iterable[Path] = ()) -> dict[str, PricedType]:
    """Give the price of each type, by name; what later files say holds.

    InvalidInput if a file is none of instance types, with every broken rule.
    """
    found: dict[str, PricedType] = {}
    for file in (_OURS, *files):
        catalogue = checked(InstanceCatalogue, read_document(file))
        for each in catalogue.types:
            usd, day = each.price_usd_per_hour, catalogue.date
            found[each.name] = PricedType(usd_per_hour=usd, date=day, source=catalogue.source)
    return found
