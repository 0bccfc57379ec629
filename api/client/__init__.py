"""The service from outside, for blocking and for asynchronous programs.

`connection` sends a call, `queries` and `service` have one for each route, `awaited` and
`blocking` are the clients.
"""

from circinus.api.client.awaited import AsyncClient
from circinus.api.client.blocking import Client
from circinus.api.client.connection import Refused, Retries

__all__ = ["AsyncClient", "Client", "Refused", "Retries"]
