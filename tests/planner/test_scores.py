import numpy as np
import pytest

from circinus.planner.models.score_noise import Increment, NoiseModel, increment, learnt, worth


def test_all_inputs_are_worth_far_more_than_all_but_one() -> None:
    assert worth(np.array([0.0, 80.0, 160.0]), 160) == pytest.approx([0, 160, 102400], rel=0.01)


ROWS = np.array([0, 1, 0])


def test_increments_add_up_to_the_mean() -> None:
    scores = np.array([1.0, 0.0, 1.0, 1.0])
    first = increment(0, scores[:0], scores[:2], 10, deviation=0.5)
    second = increment(0, scores[:2], scores, 10, deviation=0.5)
    total = first.value * (first.stop - first.start) + second.value * (second.stop - second.start)
    assert total / second.stop == pytest.approx(0.75)
    assert (first.start, first.stop) == (0.0, second.start)


def test_the_noise_is_that_of_means_over_the_same_inputs() -> None:
    """Against simulation: 2,000 populations, error of each covariance below 4 deviations."""
    rng = np.random.default_rng(0)
    population, part, shared = 40, 1.0, 0.4
    spans = [(0, 0, 4), (1, 0, 10), (0, 4, 12)]  # of rows that differ in two knobs
    found = []
    for _ in range(2000):
        common = np.sqrt(shared) * rng.standard_normal(population)
        own = np.sqrt(1 - shared) * rng.standard_normal((2, population))
        scores = 0.5 * (common + own)
        scores -= scores.mean(axis=1, keepdims=True)  # what is estimated is the population's mean
        found.append(
            [
                increment(row, scores[row, :a], scores[row, :b], population, deviation=0.5).value
                for row, a, b in spans
            ]
        )
    steps = [
        Increment(
            row=row,
            start=float(worth(np.array(float(a)), population)),
            stop=float(worth(np.array(float(b)), population)),
            value=0.0,
            deviation=0.5,
        )
        for row, a, b in spans
    ]
    noise = NoiseModel(part=part, shared=0.1, near=(shared - 0.1) * np.exp(2 / 3))
    expected = noise.covariances(steps, steps, 2.0 * (ROWS[:, None] != ROWS))
    seen = np.cov(np.array(found).T)
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)) * 2 / 2000)
    assert (np.abs(seen - expected) < 4 * scale + 0.05 * np.abs(expected)).all()


def test_shared_noise_is_learnt() -> None:
    rng = np.random.default_rng(1)
    hard = rng.random(80) < 0.5
    alike = [np.where(rng.random(80) < 0.1, ~hard, hard).astype(float) for _ in range(6)]
    unlike = [(rng.random(80) < 0.5).astype(float) for _ in range(6)]
    means = np.full(6, 0.5)
    apart = 1.0 - np.eye(6)
    assert correlation(learnt(alike, means, apart), 1.0) > 0.5
    assert correlation(learnt(unlike, means, apart), 1.0) < 0.1
    assert learnt(unlike, means, apart).part == pytest.approx(1.0, abs=0.1)


def test_what_only_neighbours_share_is_told_from_what_all_share() -> None:
    """Against draws: two groups far apart, inputs hard for one group each, some for both."""
    rng = np.random.default_rng(2)
    both, own = rng.standard_normal(4000), rng.standard_normal((2, 4000))
    noise = rng.standard_normal((2, 5, 4000))
    scores = 0.5 + 0.1 * (
        np.sqrt(0.2) * both + np.sqrt(0.4) * own[:, None] + np.sqrt(0.4) * noise
    ).reshape(10, 4000)
    group = np.repeat([0, 1], 5)
    apart = np.where(group[:, None] == group, 1.0, 12.0)
    found = learnt(list(scores), np.full(10, 0.5), apart)
    assert correlation(found, 1.0) == pytest.approx(0.6, abs=0.05)
    assert correlation(found, 12.0) == pytest.approx(0.2, abs=0.05)


def correlation(noise: NoiseModel, apart: float) -> float:
    return float(noise.shared + noise.near * np.exp(-apart / 3))
