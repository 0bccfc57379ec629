"""What plans with calls are predicted to cost and take, beside what they were billed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from scipy.stats import binom

from tests.calls.answering import answering, billed, served
from tests.calls.server import serving_models

REQUESTS = int(os.environ.get("CIRCINUS_TEST_REQUESTS", "200"))
"""2,000 for the figures in `docs/calls.md`; of fewer a sample's p95 says less."""
SLACK = 0.15  # of the predicted latency


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2] if REQUESTS >= 2000 else [0])
def test_what_requests_cost_and_take_is_what_was_predicted(seed: int, tmp_path: Path) -> None:
    with serving_models(seed=seed) as models, answering(tmp_path, models) as (service, client):
        # the calls that cost most, so that there is something to predict
        named = served(
            service,
            client,
            restrictions={"knobs": {"reader": {"model": {"never": ["rented"]}}}},
        )
        assert models.charged_usd <= 0.25
        found = billed(client, models, named, REQUESTS, seed=seed)
    print(f"\nseed {seed}: {found.words()}")  # noqa: T201 - shown by `pytest -s`
    assert found.usd_per_1000 == pytest.approx(found.predicted_usd_per_1000, rel=0.05)
    # A twentieth of the requests takes longer than predicted, as far as a sample shows it.
    few, many = (binom.ppf(at, REQUESTS, 0.05) for at in (0.001, 0.999))
    predicted_s = found.plan.latency_s.value or 0.0
    assert found.slower(predicted_s * (1 + SLACK)) <= many
    assert found.slower(predicted_s / (1 + SLACK)) >= few
