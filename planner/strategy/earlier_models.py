"""Models of earlier queries: means of all of them, whole predictions of those that vote.

| symbol | meaning |
| --- | --- |
| Q, m, D | earlier queries, candidates, encoded columns |
| N | configurations that all of them measured together |

Each has the two models of CMBO, of accuracy and of log latency, on what it measured. One of them
learns hyper-parameters; the others have the same, because knobs of one pipeline matter alike. So
the means of 1,000 queries cost milliseconds. What a vote needs beside, deviations at all
candidates and latencies with the waits of this query's rate, is computed when a query votes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from circinus.pipelines.model.configuration import Configuration, IndexArray
from circinus.pipelines.model.latency import Work, compose
from circinus.pipelines.model.profile import FloatArray
from circinus.planner.deployment.prediction import mean_work, shares_of
from circinus.planner.models.history import ConfigurationRecord, QueryRecord
from circinus.planner.strategy.protocol import Measured, SearchSetting
from circinus.planner.strategy.space import encode
from circinus.planner.strategy.surrogate import Posterior, SurrogateSettings, alike, fit

FEWEST = 3
"""Configurations that an earlier query must have measured to have models."""
MOST = 64
"""Configurations of a query that its models rest on, those on most inputs: a proposal takes longer
with more, and a search leaves about as many."""
SHORTEST_S = 1e-9  # logs of latencies and costs need positive values

_AT_ONCE = 400_000  # latencies, of works on placements, that are composed together


class EarlierModels:
    """The models of earlier queries, Q of them. A `planner.strategy.warm_start.Voters`."""

    def __init__(
        self,
        setting: SearchSetting,
        records: Sequence[QueryRecord],  # at least one, with at least FEWEST configurations each
        encoded: FloatArray,  # the candidates, (m, D)
        settings: SurrogateSettings,
    ) -> None:
        # deviates: refitted-earlier-models
        self._setting, self._encoded = setting, encoded
        self._settings = replace(settings, warm_steps=0)
        self._records = [_best_known(record.configurations) for record in records]
        ends = np.cumsum([len(each) for each in self._records])[:-1]
        every = [one for each in self._records for one in each]
        number = cache(setting.space.number)  # records share most configurations
        numbers = [number(one.configuration) for one in every]
        inputs = np.array([one.inputs for one in every], dtype=np.float64)
        self._x = np.split(encode(setting.space, numbers), ends)
        accuracy = np.array([one.accuracy for one in every])
        self._targets = [np.split(y, ends) for y in (accuracy, _log(_bare_s(setting, every)))]
        self.doubts = np.array([(part**-0.5).mean() for part in np.split(inputs, ends)])
        weights = [(len(x), -doubt) for x, doubt in zip(self._x, self.doubts, strict=True)]
        first = max(range(len(weights)), key=weights.__getitem__)
        self._learnt = [
            fit(self._x[first], y[first][:, None], settings=settings) for y in self._targets
        ]
        self._ensembles = [
            alike(learnt, list(zip(self._x, y, strict=True)))
            for learnt, y in zip(self._learnt, self._targets, strict=True)
        ]
        self._posteriors: dict[tuple[int, int], Posterior] = {}

    def means(self, position: int) -> FloatArray:  # (Q, 2)
        """Return what all predict of a candidate: accuracy, log of bare latency."""
        row = self._encoded[position]
        return np.stack([ensemble.means(row) for ensemble in self._ensembles], axis=1)

    def figures(self, measured: Measured) -> tuple[float, float]:
        """Return what `means` predicts, as it was measured.

        A record has mean seconds and knows no rate of requests: the latency is that of the
        average input at full shares, without waits for copies.
        """
        setting, work = self._setting, mean_work(measured.work)
        bare_s = _least_s(setting, measured.configuration, work)
        return measured.accuracy.value, float(_log(bare_s)[0])

    def posteriors(self, queries: IndexArray, target: int) -> list[Posterior]:
        """Return predictions of all candidates, shape (m,), of some queries.

        Of accuracy (target 0), or of the log of the latency that the SLO is about (1). Those of
        the queries of the last call are not computed again.
        """
        before = self._posteriors
        chosen = {(q, target): before.get((q, target)) for q in queries.tolist()}
        predicted = {key: known or self._posterior(*key) for key, known in chosen.items()}
        others = {key: known for key, known in before.items() if key[1] != target}
        self._posteriors = {**others, **predicted}
        return list(predicted.values())

    def _posterior(self, query: int, target: int) -> Posterior:
        y = self._targets[target][query]
        if target == 1 and self._setting.context.requests_per_s is not None:
            record = self._records[query]
            works = [one.mean_work for one in record]
            y = _log(self._setting.least_latencies([one.configuration for one in record], works))
        learnt, settings = self._learnt[target], self._settings
        model = fit(self._x[query], y[:, None], warm=learnt, settings=settings)
        return model.predict(self._encoded).target(0)


def earlier_models(
    setting: SearchSetting, encoded: FloatArray, settings: SurrogateSettings
) -> EarlierModels | None:
    """Return the models of all earlier queries of a setting; None: none measured enough.

    The candidates are encoded, shape (m, D).
    """
    records = [one for one in setting.history if len(one.configurations) >= FEWEST]
    return EarlierModels(setting, records, encoded, settings) if records else None


def _best_known(every: Sequence[ConfigurationRecord]) -> Sequence[ConfigurationRecord]:
    """Return at most MOST configurations, those on most inputs, of these the first measured."""
    if len(every) <= MOST:
        return every
    return sorted(every, key=lambda one: -one.inputs)[:MOST]


def _log(seconds: FloatArray) -> FloatArray:
    return np.asarray(np.log(np.maximum(seconds, SHORTEST_S)))


def _bare_s(setting: SearchSetting, every: Sequence[ConfigurationRecord]) -> FloatArray:  # (N,)
    """Return the least latency of the average input of each record, at full shares, no waits."""
    groups: dict[object, list[int]] = defaultdict(list)
    for i, one in enumerate(every):  # placements are alike where operators call alike
        groups[setting.called(one.configuration)].append(i)
    least = np.zeros(len(every))
    for rows in groups.values():
        chunk = max(_AT_ONCE // len(setting.placements_of(every[rows[0]].configuration)), 1)
        for start in range(0, len(rows), chunk):
            some = rows[start : start + chunk]
            records = [every[i] for i in some]
            least[some] = _least_s(setting, records[0].configuration, _joined(records))
    return least


def _least_s(setting: SearchSetting, configuration: Configuration, work: Work) -> FloatArray:
    """Return the least seconds of each input, (n,), over the placements of a configuration."""
    context, spots = setting.context, setting.placements_of(configuration)
    shares = shares_of(spots, spots.full_steps)
    seconds = compose(context.graph, context.infrastructure, work, spots.tiers, shares)
    return np.asarray(seconds.min(axis=0))


def _joined(records: Sequence[ConfigurationRecord]) -> Work:
    """Return the average inputs of records, one for each."""
    operators = len(records[0].operator_s)
    waits = [one.waited_s or (0.0,) * operators for one in records]
    return Work(
        operator_s=np.array([one.operator_s for one in records]).T,
        output_bytes=np.array([one.output_bytes for one in records]).T,
        input_bytes=np.array([one.input_bytes for one in records]),
        waited_s=np.array(waits).T if any(one.waited_s for one in records) else None,
    )
