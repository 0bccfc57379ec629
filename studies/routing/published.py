"""The deployment units of tables 1 and 2 of adaptive orchestration."""

from circinus.scheduler.routing.units import DeploymentUnit, ExecutionMode

_TABLE = (
    # name, hardware, framework, execution, USD an hour, requests per second, seconds
    ("inf2", "inf2.xlarge", "neuron", ExecutionMode.GRAPH, 0.7582, 105.0, 0.67),
    ("trn1", "trn1.2xlarge", "neuron", ExecutionMode.GRAPH, 1.3438, 130.0, 0.51),
    ("g5-triton", "g5.xlarge", "triton", ExecutionMode.GRAPH, 1.0060, 90.0, 0.68),
    ("g6-triton", "g6.xlarge", "triton", ExecutionMode.GRAPH, 0.8048, 61.0, 0.96),
    ("g5-cuda", "g5.xlarge", "cuda", ExecutionMode.EAGER, 1.0060, 60.0, 0.92),
)
UNITS = tuple(
    DeploymentUnit(
        name=name,
        model="sd21",
        hardware=hardware,
        framework=framework,
        execution=execution,
        price_usd_per_hour=price,
        most_per_s=most,
        latency_s=latency,
    )
    for name, hardware, framework, execution, price, most, latency in _TABLE
)
