"""`make demo-calls`: a pipeline whose reader is called at one of three prices, or rented.

Starts a server of models that charges, plans the pipeline for accuracy, p95 and dollars per 1,000
requests, serves it, and compares what was predicted with what was billed. Exits with 1 where an
objective was surely missed.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.calls.answering import QUERY, RATE_PER_S, Billed, answering, billed, served
from tests.calls.server import serving_models

REQUESTS = 200
SEED = 3
_SLACK = 1.15  # of the latency objective: so much a sample of p95 may be off


def main() -> int:
    """Run it all; give the exit code."""
    start = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - start:6.1f} s  {line}", flush=True)

    temporary = tempfile.TemporaryDirectory(prefix="circinus-demo-calls-")
    with temporary as folder, serving_models(seed=SEED) as models:
        tell(f"models that charge answer at {models.url}")
        with answering(Path(folder), models) as (service, client):
            tell(f"the service answers at http://127.0.0.1:{service.port}")
            named = served(service, client)
            plan = named[1]
            tell(
                f"planned with {len(models.calls)} calls for ${models.charged_usd:.4f}, "
                f"at most ${QUERY['limits']['profiling_usd']} allowed"
            )
            for operator, tier in plan.placement.items():
                chosen = plan.configuration.get(operator, {})
                told = ", ".join(f"{knob} {value}" for knob, value in chosen.items())
                tell(f"  {operator} ({told}) on {tier}")
            tell(f"sending {REQUESTS} requests, {RATE_PER_S:g} a second")
            found = billed(client, models, named, REQUESTS, seed=SEED)
            tell(found.words())
    tell("everything was stopped again")
    return _verdict(found)


def _verdict(found: Billed) -> int:
    bound_s, bound_usd = QUERY["slo"]["latency_s"], QUERY["slo"]["cost_usd_per_1000_requests"]
    missed = [
        f"{name} {got:.4f} > {bound}"
        for name, got, bound in (
            ("p95", found.p95_s / _SLACK, bound_s),
            ("dollars per 1,000", found.usd_per_1000, bound_usd),
        )
        if got > bound
    ]
    print(f"objectives missed: {', '.join(missed)}" if missed else "objectives met", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
