"""The paths of what has an id. An id ends where a colon begins, and no database takes NUL in one.

So `GET /v1/queries/ID:cancel` is a method that the path does not have, not a query that is none.
"""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor


class IdConvertor(Convertor[str]):
    """An id within a path."""

    regex = r"[^/:\x00]+"

    def convert(self, value: str) -> str:
        """Return it as it is."""
        return value

    def to_string(self, value: str) -> str:
        """Return it as it is."""
        return value


register_url_convertor("id", IdConvertor())
QUERY = "/queries/{query_id:id}"
PLAN = "/plans/{plan_id:id}"
DATASET = "/{dataset_id:id}"
ROUTE = "/routes/{name:id}"
