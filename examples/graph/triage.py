"""A LangGraph graph, planned as it is: easy texts take the short way, others the long one.

    python examples/graph/triage.py

Each node becomes an operator. A node behind a condition does nothing on inputs that go elsewhere,
so what a plan takes and costs is what the nodes take that ran.
"""

from __future__ import annotations

from typing import TypedDict

from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnablePassthrough
from langgraph.graph import END, START, StateGraph

import circinus

LONG = 6  # words


class Sum(TypedDict, total=False):
    """What nodes hand on."""

    text: str  # such as `3 + 4 + 5`
    easy: bool
    answer: int


def look(state: Sum) -> Sum:
    """Return whether a sum is short."""
    return {"easy": len(state["text"].split()) <= LONG}


def guess(state: Sum) -> Sum:
    """Return the first and the last number: right for sums of two."""
    numbers = [int(word) for word in state["text"].split() if word.isdecimal()]
    return {"answer": numbers[0] + numbers[-1]}


def add(state: Sum) -> Sum:
    """Add all numbers."""
    numbers = [int(word) for word in state["text"].split() if word.isdecimal()]
    return {"answer": sum(numbers)}


graph = StateGraph(Sum)
graph.add_node("look", look)
short = (RunnablePassthrough() | guess).configurable_alternatives(
    ConfigurableField(id="short"), default_key="guess", add=RunnableLambda(add)
)
graph.add_node("short", short)
graph.add_node("long", add)
graph.add_edge(START, "look")
graph.add_conditional_edges(
    "look", lambda state: "short" if state["easy"] else "long", ["short", "long"]
)
graph.add_edge("short", END)
graph.add_edge("long", END)
compiled = graph.compile()

SUMS = [" + ".join(str(n + i) for i in range(2 + n % 3)) for n in range(36)]
DATA: list[tuple[Sum, int]] = [({"text": text}, sum(map(int, text.split(" + ")))) for text in SUMS]


def right(output: Sum, expected: int) -> float:
    """Return 1 for the right answer."""
    return float(output["answer"] == expected)


if __name__ == "__main__":
    result = circinus.plan(compiled, DATA, accuracy=0.9, latency_s=0.2, score=right)
    print(result)  # noqa: T201 - an example
    print(result.as_runnable().invoke({"text": "20 + 22"})["answer"])  # noqa: T201
