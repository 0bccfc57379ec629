"""The service from outside, its verbs once for blocking and for asynchronous callers.

`calls` says what is sent, `exchange` how often and what its answer means, `clients` sends it.
"""

from circinus.api.client.clients import AsyncClient, Client
from circinus.api.client.exchange import Refused, Retries

__all__ = ["AsyncClient", "Client", "Refused", "Retries"]
