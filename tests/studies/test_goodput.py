import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.infrastructure_file import infrastructure_from_dict
from circinus.pipelines.io.trace import load_trace
from circinus.scheduler.problem import Objective, PlanOption
from circinus.studies.online.arrivals import ArrivalKind, Stay, read_times, stays
from circinus.studies.online.computing import computing_s
from circinus.studies.online.goodput import run
from circinus.studies.online.planned import ORACLE, PlannedQuery, Shelf, Site
from circinus.studies.online.report import headlines, pictures, summary
from circinus.studies.online.study import Competitor, GoodputStudy
from circinus.studies.online.window import Window, _looks
from circinus.studies.planning.ground_truth import GroundTruth
from tests.api.cli.commands import invoke
from tests.studies.traces import saved_trace

SITE = infrastructure_from_dict(
    {
        "name": "small",
        "tiers": [
            {"name": "device", "machines": 1, "price_usd_per_hour": 0.0, "speed_factor": 0.2}
            | {"dedicated": True},
            {"name": "cloud", "machines": 2, "price_usd_per_hour": 1.0},
        ],
        "links": [{"between": ["device", "cloud"], "bandwidth_mbit_per_s": 50}],
    }
)
QUICK = {"seeds": 1, "queries": 6, "window_s": 600.0, "stay_s": 120.0, "response_s": (5.0,)}
OPTION = PlanOption(plan_id="p", demand=(), cost_usd_per_hour=0.0)
"""It asks for no machine."""


def study(folder: Path, **others: object) -> GoodputStudy:
    values = {"methods": ("default", ORACLE), **QUICK, **others}
    return GoodputStudy(traces=(saved_trace(folder),), infrastructure=SITE, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"methods": ("best",)}, "method must be among"),
        ({"methods": ("default/best",)}, "methods must be among priced"),
        ({"methods": ("exhaustive",)}, "methods must be among default"),
        ({"levels": ("none",)}, "slo must be among"),
        ({"loads": (0.0,)}, "load must be finite and > 0"),
        ({"response_s": (-1.0,)}, "response must be finite and > 0"),
        ({"history": (-1,)}, "history must be"),
        ({"queries": 0}, "queries must be >= 1"),
        ({"methods": ("default", "default")}, "methods must not repeat, got 'default'"),
        ({"levels": ()}, "slo must not be empty"),
        ({"response_s": (5.0, 5.0)}, "response must not repeat"),
        ({"objective": Objective.COST, "ilp_every": 5}, "ilp_every must be left out"),
        ({"times": (1.0,), "loads": (2.0,)}, "load must be left out, or 1"),
        ({"times": (700.0,)}, "arrivals must begin within the window of 600 s"),
        ({"migration_price": -1.0}, "migration_price must be finite and >= 0"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(
    tmp_path: Path, wrong: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        study(tmp_path, **wrong)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\nx\n", "arrivals, line 2 must be a number of seconds"),
        ("2\n1\n", "arrivals, line 2 must be >= 2"),
        ("-1\n", "arrivals, line 1 must be finite and >= 0"),
        ("\n", "arrivals must have a line at least"),
    ],
)
def test_a_file_of_arrivals_names_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "times"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=message):
        read_times(file)


@pytest.mark.parametrize("kind", ArrivalKind)
def test_arrivals_have_their_mean_rate_and_stays_their_mean(kind: ArrivalKind) -> None:
    drawn = [
        stays(kind, per_s=0.05, window_s=36_000.0, mean_stay_s=600.0, seed=seed)
        for seed in range(20)
    ]
    assert np.mean([len(each) for each in drawn]) == pytest.approx(1800, rel=0.1)
    lengths = [stay.leaves_s - stay.arrives_s for each in drawn for stay in each]
    assert np.mean(lengths) == pytest.approx(600, rel=0.03)
    assert min(lengths) >= 120


def test_bursts_are_what_a_poisson_process_has_not() -> None:
    def dispersion(kind: ArrivalKind) -> float:
        """Variance over mean of the arrivals of a minute: 1 of a Poisson process."""
        made = stays(kind, per_s=0.5, window_s=200_000.0, mean_stay_s=60.0, seed=1)
        counts = np.histogram([stay.arrives_s for stay in made], np.arange(0, 200_001, 60))[0]
        return float(counts.var() / counts.mean())

    assert dispersion(ArrivalKind.POISSON) == pytest.approx(1, abs=0.1)
    assert dispersion(ArrivalKind.BURSTY) > 3


THERE = (Stay(100.0, 400.0), Stay(200.0, 500.0), Stay(300.0, 700.0))


def test_changes_are_looked_at_every_five_seconds_within_the_window() -> None:
    kinds = [
        PlannedQuery(seconds=seconds, options=(OPTION,), true=(), measured=1)
        for seconds in (0.0, 50.0, 400.0)  # the last one leaves before
    ]
    looks = list(_looks(THERE, kinds, 600.0, 5.0))
    assert [at for at, _ in looks] == [105.0, 205.0, 255.0, 305.0, 405.0, 505.0]
    assert [len(changes) for _, changes in looks] == [2, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("true", "options", "part"),
    [(("p",), (OPTION,), (1, 1)), ((), (OPTION,), (0, 1)), ((), (), (0, 0))],
    ids=["true plans", "false plans", "no plans"],
)
def test_goodput_is_the_integral_of_who_is_served_truly(
    tmp_path: Path, true: tuple[str, ...], options: tuple[PlanOption, ...], part: tuple[int, int]
) -> None:
    kind = PlannedQuery(seconds=20.0, options=options, true=true, measured=1)
    window = Window(study(tmp_path), Competitor.of("default"), THERE, [kind], seed=0)
    figures = window.figures()
    live = (405 - 105) + (505 - 205) + (600 - 305)
    served = live - 3 * 20
    assert figures.live == pytest.approx(live / 600)
    assert figures.goodput == pytest.approx(part[0] * served / 600)
    assert figures.served == pytest.approx(part[1] * served / 600)
    minutes = [float(minute) for minute in figures.minutes.split()]
    assert len(minutes) == 10
    assert np.mean(minutes) == pytest.approx(figures.goodput, rel=1e-3)


def test_the_oracle_has_all_plans_that_truly_satisfy(tmp_path: Path) -> None:
    trace = load_trace(saved_trace(tmp_path))
    truth = GroundTruth(trace, SITE)
    for goal in truth.goals("medium"):
        options = truth.options(goal.slo)
        costs = [option.cost_usd_per_hour for option in options]
        assert costs == sorted(costs)
        assert costs[0] == pytest.approx(goal.least_cost)


def test_who_knows_all_serves_no_less_and_equal_studies_are_equal(tmp_path: Path) -> None:
    first = run(study(tmp_path / "trace", ilp_every=5), tmp_path / "a")
    by_method = {row.method: row for row in first}
    assert by_method[ORACLE].goodput >= by_method["default"].goodput - 0.5
    assert by_method[ORACLE].true == 1.0
    assert by_method["default"].goodput > 0
    again = run(study(tmp_path / "trace", ilp_every=5), tmp_path / "b")
    assert again == first


def test_all_are_served_on_rented_machines_for_no_less_than_who_knows_all_pays(
    tmp_path: Path,
) -> None:
    rented = study(
        tmp_path / "trace",
        objective=Objective.COST,
        methods=(ORACLE, "default", "vulcan"),
        response_s=(0.2,),
    )
    oracle, default, vulcan = run(rented, tmp_path / "out")
    assert oracle.served == default.served == pytest.approx(oracle.live, abs=0.2)
    assert 0 < oracle.usd_per_hour <= default.usd_per_hour <= vulcan.usd_per_hour
    assert vulcan.planned < 1.0  # who has no plan is served by whole machines
    assert vulcan.goodput == pytest.approx(vulcan.served, abs=1e-6)


def test_a_study_that_was_stopped_goes_on_with_what_is_planned(tmp_path: Path) -> None:
    whole = run(study(tmp_path / "trace"), tmp_path / "out")
    (shelf,) = (tmp_path / "out" / "planned").iterdir()
    lines = shelf.read_bytes().splitlines(keepends=True)
    shelf.write_bytes(b"".join(lines[:4]) + lines[4][:20])  # as a kill leaves it
    assert run(study(tmp_path / "trace"), tmp_path / "out") == whole
    assert shelf.read_bytes().splitlines(keepends=True) == lines


def test_a_shelf_returns_what_it_holds(tmp_path: Path) -> None:
    planned = PlannedQuery(seconds=1.5, options=(OPTION,), true=("p",), measured=3)
    made = Shelf(tmp_path / "shelf").planned("a b", lambda: planned)
    assert made == Shelf(tmp_path / "shelf").planned("a b", lambda: replace(planned, measured=4))


def test_computing_counts_towards_the_response_time(tmp_path: Path) -> None:
    trace = load_trace(saved_trace(tmp_path))
    site = Site("unknown", trace, SITE, seed=0)
    (query,) = site.submissions(1, "medium")
    planned = site.planned(query, "published", 0.3)
    assert computing_s("published", "unknown") > 0
    assert planned.measured <= 60
    assert planned.seconds >= 0.3


@pytest.mark.parametrize("name", ["published/fcfs", "oracle/ilp", "vulcan"])
def test_methods_have_a_policy_of_their_own_or_another(name: str) -> None:
    policy = {"published/fcfs": "fcfs", "oracle/ilp": "ilp", "vulcan": "priced"}
    assert Competitor.of(name).policy == policy[name]


def test_earlier_queries_are_of_the_other_half(tmp_path: Path) -> None:
    rows = run(study(tmp_path / "trace", methods=("default",), history=(0, 2)), tmp_path / "out")
    assert [row.history for row in rows] == [0, 2]


def test_the_command_writes_a_table_and_pictures(tmp_path: Path) -> None:
    folder, out = saved_trace(tmp_path / "trace"), tmp_path / "out"
    options = ["--methods", "videostorm,oracle", "--infrastructure", "paper-small", "--seeds", "2"]
    options += ["--queries", "4", "--window", "5", "--stay", "2", "--response", "5", "--json"]
    result = invoke("study", "goodput", "--trace", str(folder), "--out", str(out), *options)
    assert result.exit_code == 0, result.output
    (first, second) = json.loads(result.stdout)["cells"]
    assert (first["method"], second["method"]) == ("videostorm", ORACLE)
    assert first["windows"] == 2
    assert "| paper-small |" in (out / "goodput.md").read_text()
    (picture,) = out.glob("goodput-*.svg")
    assert "planned within 5 s" in picture.read_text()


def test_headlines_are_of_the_default_in_its_shortest_time(tmp_path: Path) -> None:
    (row,) = run(study(tmp_path / "trace", methods=(ORACLE,)), tmp_path / "out")
    rows = [
        replace(row, method=method, response_s=response_s, seed=seed, goodput=goodput)
        for method, response_s, goodputs in [
            ("default", 5.0, (6.0, 8.0)),
            ("default", 15.0, (9.0, 9.0)),
            ("vulcan", 5.0, (0.0, 0.0)),
            ("vulcan", 15.0, (2.0, 4.0)),
        ]
        for seed, goodput in enumerate(goodputs)
    ]
    longer, never, late = headlines(rows)
    assert longer.method == "default"
    assert longer.ratio == pytest.approx(14 / 18)
    assert (never.method, never.response_s, never.ratio) == ("vulcan", 5.0, np.inf)
    assert late.ratio == pytest.approx(14 / 6)
    assert (late.least, late.most) == (2.0, 3.0)
    dear = [replace(r, objective="cost", usd_per_hour=r.goodput + 1) for r in rows]
    assert headlines(dear)[0].ratio == pytest.approx(20 / 16)


def test_a_summary_is_over_seeds(tmp_path: Path) -> None:
    rows = run(study(tmp_path / "trace", methods=(ORACLE,), seeds=3), tmp_path / "out")
    (cell,) = summary(rows)
    assert cell.windows == 3
    assert cell.goodput == pytest.approx(np.mean([row.goodput for row in rows]))
    assert len(pictures(rows)) == 1


def test_a_query_that_leaves_before_its_plan_is_scheduled_was_never_offered(
    tmp_path: Path,
) -> None:
    kinds = [
        PlannedQuery(seconds=seconds, options=(OPTION,), true=("p",), measured=1)
        for seconds in (299.0, 299.5, 400.0)  # in the look in which it leaves, twice, and after it
    ]
    there = (Stay(100.0, 399.9), Stay(100.0, 399.9), Stay(100.0, 300.0), Stay(100.0, 550.0))
    window = Window(study(tmp_path), Competitor.of("default"), there, kinds, seed=0)
    window._kinds = [*kinds, replace(kinds[0], seconds=100.0)]
    figures = window.figures()
    assert figures.served == pytest.approx((555 - 205) / 600)
    assert figures.true == 1.0


def test_figures_of_nobody_are_none_and_ratios_pair_windows_of_a_seed(tmp_path: Path) -> None:
    nobody = Window(study(tmp_path), Competitor.of("default"), (), (), seed=0).figures()
    assert nobody.true is None
    assert nobody.planning_s is None
    rows = run(study(tmp_path / "trace", seeds=2), tmp_path / "out")
    swapped = [*rows[:2], rows[3], rows[2]]
    assert headlines(swapped) == headlines(rows)


def test_plans_of_another_infrastructure_of_the_same_name_are_not_taken(tmp_path: Path) -> None:
    methods = ("videostorm", ORACLE)
    run(study(tmp_path / "trace", methods=methods), tmp_path / "out")
    more = replace(SITE, tiers=(SITE.tiers[0], replace(SITE.tiers[1], speed_factor=1.5)))
    other = replace(study(tmp_path / "trace", methods=methods), infrastructure=more)
    assert run(other, tmp_path / "out") == run(other, tmp_path / "fresh")
    assert len(list((tmp_path / "out" / "planned").iterdir())) == 2


def test_load_has_no_meaning_where_no_shared_machine_is_used(tmp_path: Path) -> None:
    alone = replace(SITE, tiers=(replace(SITE.tiers[0], speed_factor=50.0), SITE.tiers[1]))
    with pytest.raises(InvalidInput, match="infrastructure must have shared machines"):
        run(replace(study(tmp_path / "trace"), infrastructure=alone), tmp_path / "out")
