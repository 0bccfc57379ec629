"""What a cluster answers instead of doing as it is told, by who must act."""

from __future__ import annotations

from pipelines.errors import CircinusError


class ClusterRefused(CircinusError):
    """The API server understood and said no.

    Attributes:
        status: HTTP status of the answer.
        reason: The server's word for it, such as `Forbidden`, `Conflict`, `AlreadyExists`.
        words: The server's sentence.
    """

    def __init__(self, doing: str, status: int, reason: str, words: str) -> None:
        self.status = status
        self.reason = reason
        self.words = words
        super().__init__(f"cannot {doing}: {words or reason}")


class Forbidden(ClusterRefused):
    """The account may not do it: a role is missing."""


class Clash(ClusterRefused):
    """Somebody else changed the object first, or made one of the same name."""


class Expired(ClusterRefused):
    """What was watched from is forgotten: list again."""
