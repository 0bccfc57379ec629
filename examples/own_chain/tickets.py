"""A chain of one's own, planned as it is: which team gets a ticket.

    python examples/own_chain/tickets.py

Nothing of the chain is made for Circinus: `choices` names the values to try for the field that the
chain leaves open, and the alternatives are LangChain's own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from langchain_core.runnables import (
    ConfigurableField,
    Runnable,
    RunnableConfig,
    RunnableLambda,
    RunnableSerializable,
)

import circinus

TICKETS = Path(__file__).with_name("tickets.jsonl")  # {"input": ..., "expected": ...} a line
ROUTED = {  # tickets of the past, with the team that dealt with them
    "billing": "invoices charged twice payments refunds",
    "delivery": "parcels packages couriers tracking shipping addresses arrival sending",
    "account": "logging in locked passwords accounts emails users signing",
    "defect": "broken cracked screens battery noisy working buttons charger cables",
}
RULES = {"invoice": "billing", "parcel": "delivery", "password": "account", "broken": "defect"}


def words(ticket: str) -> list[str]:
    """Return the words of a ticket, in small letters."""
    return re.findall(r"[a-z]+", ticket.lower())


def by_rules(ticket: list[str]) -> str:
    """Return the team of the first rule whose word is there."""
    return next((team for word, team in RULES.items() if word in ticket), "billing")


class MostAlike(RunnableSerializable[list[str], str]):
    """The team whose words are the most alike, by parts of words of so many letters."""

    letters: int = 9

    def invoke(self, input: list[str], config: RunnableConfig | None = None, **_: object) -> str:
        """Return the team that shares the most parts of words with the ticket."""
        ticket = self._parts(input)
        alike = {
            team: sum((ticket & self._parts(known.split())).values())
            for team, known in ROUTED.items()
        }
        return max(alike, key=alike.__getitem__)

    def _parts(self, words: Sequence[str]) -> Counter[str]:
        return Counter(word[: self.letters] for word in words if len(word) > 2)


team: Runnable[list[str], str] = (
    MostAlike()
    .configurable_fields(letters=ConfigurableField(id="letters"))
    .configurable_alternatives(
        ConfigurableField(id="team"), default_key="alike", rules=RunnableLambda(by_rules)
    )
)
chain = RunnableLambda(words) | team


def right(output: str, expected: str) -> float:
    """Return 1 for the right team."""
    return float(output == expected)


if __name__ == "__main__":
    result = circinus.plan(
        chain,
        TICKETS,
        accuracy=0.7,
        latency_s=0.05,
        score=right,
        choices={"letters": (3, 5, 9)},
    )
    print(result)  # noqa: T201 - an example
    router = result.as_runnable()
    print(router.invoke("Where is my parcel?"))  # noqa: T201
