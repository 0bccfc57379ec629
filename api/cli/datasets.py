"""`circinus datasets`: data of one's own in the service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument

from circinus.api.client import Client
from circinus.api.text import formats, tables
from circinus.api.text.screen import Screen

DatasetId = Annotated[str, Argument(metavar="ID", help="Id of a data set.")]


def list_(screen: Screen, client: Client) -> None:
    """List the data sets of the service, the newest first, with the queries that use them."""
    datasets = client.datasets()
    rows = (
        (one.id, str(one.inputs), str(one.size_bytes), formats.moment(one.created_at), used)
        for one in datasets.items
        for used in [", ".join(one.queries) or formats.UNKNOWN]
    )
    columns = ("data set", "inputs", "bytes", "handed over", "queries")
    screen.show(tables.table("Data sets", *columns, right=[1, 2], rows=rows), document=datasets)


def add(
    screen: Screen,
    client: Client,
    path: Annotated[Path, Argument(metavar="PATH", help="JSON lines, or a folder.")],
) -> None:
    """Hand over a file of JSON lines or a folder; prints its id. `submit` does so by itself."""
    dataset, _ = client.hand_over(path)
    screen.show(dataset.id, document=dataset)


def delete(screen: Screen, client: Client, dataset: DatasetId) -> None:
    """Delete a data set that no query uses."""
    client.forget(dataset)
    screen.show(f"{dataset}: forgotten", document={"deleted": dataset})
