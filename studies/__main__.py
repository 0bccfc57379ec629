"""`python -m studies planning ...`: runs a study without the service."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipelines.presets import PRESETS
from studies.planning import ONE_TIER, PlanningStudy, run, summary, table


def main() -> None:
    """Run the study that the command line asks for and print its table."""
    parser = argparse.ArgumentParser(prog="python -m studies")
    planning = parser.add_subparsers(required=True).add_parser("planning")
    planning.add_argument("--trace", nargs="+", type=Path, required=True)
    planning.add_argument("--strategies", default="multi_fidelity,cmbo,vulcan,videostorm,random")
    planning.add_argument("--slo", default="easy,medium,hard")
    planning.add_argument("--seeds", type=int, default=20)
    planning.add_argument("--infrastructure", choices=sorted(PRESETS))
    planning.add_argument("--budget", type=float, default=60.0, help="profiling seconds of a run")
    planning.add_argument("--first-only", action="store_true", help="end at the first true plan")
    planning.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    study = PlanningStudy(
        traces=tuple(given.trace),
        strategies=tuple(given.strategies.split(",")),
        levels=tuple(given.slo.split(",")),
        seeds=given.seeds,
        infrastructure=PRESETS[given.infrastructure] if given.infrastructure else ONE_TIER,
        budget_s=given.budget,
        first_only=given.first_only,
    )
    print(table(summary(run(study, given.out))))


if __name__ == "__main__":
    main()
