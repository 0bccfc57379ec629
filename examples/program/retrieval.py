"""A registered pipeline, planned by its name: the LangChain chain `retrieval` of the catalogue.

    python examples/program/retrieval.py

Needs circinus[retrieval]. The pipeline makes its examples by itself, so the data is a number of
them; what was measured then answers further questions without a new run.
"""

from __future__ import annotations

import circinus

if __name__ == "__main__":
    result = circinus.plan(
        "retrieval",
        24,
        accuracy=0.4,
        latency_s=0.3,
        infrastructure="local",
        restrictions={"stays_on_device": "input", "tiers": {"reader": {"never": ["device"]}}},
        configurations=24,
    )
    print(result)  # noqa: T201 - an example
    print(result.explain())  # noqa: T201
    print(result.whatif(latency="0.8x"))  # noqa: T201
