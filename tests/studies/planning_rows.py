"""A row of the planning study, for tests to change."""

from circinus.studies.planning.study import PlanningRow

ROW = PlanningRow(
    trace="a",
    method="default",
    slo="easy",
    seed=0,
    accuracy_slo=0.5,
    latency_slo_s=0.1,
    history=0,
    profiling_seconds=1.0,
    found=True,
    first_answer_true=True,
    steps=1,
    oracle_seconds=0.5,
    cost_ratio_5s=None,
    cost_ratio_20s=None,
    cost_ratio_60s=None,
    proposal_seconds_p50=0.0,
    proposal_seconds_p95=0.0,
    workers=1,
    response_seconds=1.0,
    shown=10,
    met=4,
    met_wrongly=1,
    accuracy_covered=9,
    latency_covered=8,
    latency_sure=5,
    latency_sure_covered=4,
)
