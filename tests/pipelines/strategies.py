"""Random pipelines, infrastructures and work, for property tests."""

import numpy as np
from hypothesis import strategies as st

from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.operators import Knob, OperatorSpec, Scaling
from circinus.pipelines.model.tiers import Tier


@st.composite
def graphs(draw: st.DrawFn, *, most: int = 5, batched: bool = False) -> PipelineGraph:
    """DAGs: each operator comes after any subset of the earlier ones."""
    count = draw(st.integers(1, most))
    operators = []
    for i in range(count):
        parents = draw(st.lists(st.sampled_from(range(i)), unique=True)) if i else []
        is_batched = batched and draw(st.booleans())
        operators.append(
            OperatorSpec(
                name=f"op{i}",
                after=tuple(f"op{p}" for p in sorted(parents)),
                knobs=(Knob(name="k", values=tuple(range(draw(st.integers(1, 3))))),),
                scaling=Scaling.BATCHED if is_batched else Scaling.PROPORTIONAL,
                batch_latency={1: 1.0, 4: 1.5, 8: 3.0} if is_batched else {},
            )
        )
    return PipelineGraph(name="random", operators=tuple(operators))


@st.composite
def infrastructures(draw: st.DrawFn, *, most: int = 3) -> Infrastructure:
    """One to `most` tiers in a line, of unlike speed, price and links."""
    count = draw(st.integers(1, most))
    number = st.floats(0.1, 10)
    return Infrastructure(
        name="random",
        tiers=tuple(
            Tier(
                name=f"t{i}",
                machines=draw(st.integers(1, 3)),
                price_usd_per_hour=draw(number),
                speed_factor=draw(number),
                call_s=draw(st.sampled_from([0.0, 0.01])),
                call_s_per_byte=draw(st.sampled_from([0.0, 1e-3])),
                call_delay_s=draw(st.sampled_from([0.0, 0.02])),
            )
            for i in range(count)
        ),
        links=tuple(
            Link(
                between=(f"t{i}", f"t{i + 1}"),
                bandwidth_bytes_per_s=draw(number) * 1e5,
                delay_s=draw(st.floats(0, 0.1)),
            )
            for i in range(count - 1)
        ),
    )


@st.composite
def works(draw: st.DrawFn, operators: int) -> Work:
    """Seconds and bytes of one to four inputs."""
    n = draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    return Work(
        operator_s=rng.uniform(0.001, 0.1, (operators, n)),
        output_bytes=rng.uniform(0, 1e5, (operators, n)),
        input_bytes=rng.uniform(0, 1e5, n),
    )
