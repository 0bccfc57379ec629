"""Routes that take what the gate read of a body, instead of reading it again."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from circinus.api.http.gate import tree_in


class ReadOnce(APIRoute):
    """A route whose requests have been read."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's own handler, on such a request."""
        handle = super().get_route_handler()

        async def read(request: Request) -> Response:
            return await handle(_Read(request.scope, request.receive))

        return read


class _Read(Request):
    async def json(self) -> Any:  # noqa: ANN401 - as it is overridden
        return tree_in(self.scope)
