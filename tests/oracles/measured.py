"""A measured configuration made of given work, without measuring."""

from __future__ import annotations

import numpy as np

from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.profile import FloatArray, Profile
from circinus.planner.models.estimates import accuracy_estimate
from circinus.planner.strategy.protocol import Ending, Measured


def measured_of(graph: PipelineGraph, work: Work, scores: FloatArray | None = None) -> Measured:
    """Return the first configuration with that work on each input; scores None: all right."""
    n = len(work.input_bytes)
    scores = np.ones(n) if scores is None else scores
    configuration = ConfigurationSpace(graph).configuration(0)
    return Measured(
        number=0,
        configuration=configuration,
        ending=Ending.ACCURATE,
        scores=scores,
        work=work,
        accuracy=accuracy_estimate(scores, population=n),
        latency_s=0.0,
        profile=Profile(
            configuration=configuration,
            inputs=np.arange(n),
            score=scores,
            operator_s=work.operator_s,
            output_bytes=work.output_bytes,
            input_bytes=work.input_bytes,
        ),
    )
