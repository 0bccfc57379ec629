"""Routes over deployment units that a service serves, as documents."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Engine, delete, func, select

from circinus.api.store.engine import one_at_a_time, reading, rows, writing
from circinus.api.store.records import NotFound
from circinus.api.store.tables import RouteRow
from circinus.pipelines import checks

Document = Mapping[str, object]


class SqlRoutes:
    """Stores routes on an engine whose tables exist. Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def put(self, name: str, route: Document, *, most: int) -> bool:
        """Store a route, in place of the one of that name; return whether there was none.

        InvalidInput if there would be more than `most`.
        """
        with writing(self._engine) as session:
            one_at_a_time(session, "routes")
            row = session.get(RouteRow, name)
            if row is not None:
                row.route = dict(route)
                return False
            count = session.scalar(select(func.count()).select_from(RouteRow)) or 0
            rule = f"must be at most {most}: remove one first"
            checks.require(count < most, "routes", rule, count + 1)
            session.add(RouteRow(name=name, route=dict(route)))
            return True

    def get(self, name: str) -> Document:
        """Return a route; NotFound if there is none of that name."""
        with reading(self._engine) as session:
            row = session.get(RouteRow, name)
            if row is None:
                raise NotFound("route", name)
            return row.route

    def all(self) -> dict[str, Document]:
        """Return all routes by name, in its order."""
        return {
            row.name: row.route for row in rows(self._engine, select(RouteRow).order_by("name"))
        }

    def remove(self, name: str) -> None:
        """Delete a route; NotFound if there is none of that name."""
        with writing(self._engine) as session:
            gone = delete(RouteRow).where(RouteRow.name == name).returning(RouteRow.name)
            if session.scalar(gone) is None:
                raise NotFound("route", name)
