"""Calibration on real workers; operators that sleep take as long on a busy computer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from circinus.deploy.local.launcher import LocalInstance
from circinus.deploy.profiling.calibration import (
    CalibrationSettings,
    Workload,
    all_calibrated,
    calibrated,
    off_by,
)
from circinus.deploy.runtime.instances import (
    AttachedLauncher,
    InstanceKey,
    InstanceSpec,
    Launcher,
    RunningInstance,
)
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.errors import LaunchFailed
from circinus.deploy.workers.proto.worker_pb2 import RunReply
from circinus.deploy.workers.transport import files_in
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.tiers import Calibration, ClassSpeed, MachineType, Tier
from tests.deploy.profiled_pipelines import CHAIN, chain
from tests.deploy.serving import launcher
from tests.deploy.tiny_pipelines import gathering

pytestmark = pytest.mark.slow


@dataclass
class Counting:
    """A launcher that remembers which tiers it started workers of."""

    starts: Launcher
    places: list[tuple[str, str | None]] = field(default_factory=list)

    @property
    def tiers(self) -> list[str]:
        """The tiers, without the types of the machines."""
        return [tier for tier, _ in self.places]

    async def start(self, spec: InstanceSpec) -> RunningInstance:
        """See `Launcher`."""
        self.places.append((spec.tier.name, spec.machine_type))
        return await self.starts.start(spec)


@dataclass
class Unlimited:
    """A launcher whose workers wait for nothing: as on quotas, all that a call takes is theirs."""

    starts: Launcher

    async def start(self, spec: InstanceSpec) -> RunningInstance:
        """See `Launcher`."""
        return await self.starts.start(replace(spec, share=1.0))


SPACE = ConfigurationSpace(chain.graph)
WORK = Workload(
    reference=CHAIN,
    pipeline=chain,
    configurations=[SPACE.configuration(0), SPACE.configuration(2)],
    inputs=[1.0, 2.0],
)
QUICK = CalibrationSettings(repetitions=3, share=0.5, pause_s=0.01)
EMULATED = Tier(name="edge", speed_factor=0.5, emulated=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"repetitions": 0}, "repetitions must be >= 1"),
        ({"share": 0.0}, "share must be"),
        ({"pause_s": -1.0}, "pause_s must be"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        CalibrationSettings(**settings)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("field", ["configurations", "inputs"])
def test_work_without_samples_is_refused(field: str) -> None:
    with pytest.raises(InvalidInput, match=f"{field} must have at least one"):
        replace(WORK, **{field: []})  # type: ignore[arg-type]  # one field or the other


def test_how_far_requests_are_off_holds_for_settings_that_were_not_measured() -> None:
    classes, rng, held = np.array(["a", "b", "b"]), np.random.default_rng(0), 0
    for _ in range(400):
        expected = rng.uniform(0.5, 2.0, (1, 9, 3))  # R, S, O
        # A request of each configuration is off by a factor of its own, and the tier is 0.8.
        served = expected / 0.8 * np.exp(rng.normal(0.0, 0.1, (1, 9, 1)))
        within = off_by(expected[:, :8], served[:, :8], classes, 8)
        above, below = expected[0, :8].sum(axis=0), served[0, :8].sum(axis=0)
        of_class = np.array([above[0] / below[0], *[above[1:].sum() / below[1:].sum()] * 2])
        off = (expected[0, 8] / of_class).sum() / served[0, 8].sum()
        held += 1 / within <= off <= within
    assert held / 400 == pytest.approx(0.95, abs=0.03)


def test_where_settings_make_no_difference_requests_are_not_off() -> None:
    expected = np.random.default_rng(0).uniform(0.5, 2.0, (3, 8, 2))
    served = expected / 0.8
    assert off_by(expected, served, np.array(["a", "b"]), 4) == pytest.approx(1.0)
    assert off_by(expected, served, np.array(["a", "b"]), 1) == 1.0  # nothing to tell it by


async def _calibrated(tier: Tier, work: Workload, logs: Path) -> Tier:
    return await calibrated(tier, work, launcher(logs), SystemClock(), QUICK)


def test_an_operator_that_fails_is_named(tmp_path: Path) -> None:
    work = replace(WORK, inputs=["no number"])
    with pytest.raises(OperatorFailed, match="add"):
        asyncio.run(_calibrated(EMULATED, work, tmp_path))


def test_models_are_loaded_before_a_worker_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    run = WorkerClient.run

    async def recorded(self: WorkerClient, *args: object, **more: object) -> RunReply:
        events.append("warm up" if more.get("warm_up") else "run")
        return await run(self, *args, **more)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(WorkerClient, "run", recorded)
    monkeypatch.setattr(LocalInstance, "limit", lambda _: events.append("limit"))
    settings = replace(QUICK, repetitions=1)
    asyncio.run(calibrated(EMULATED, WORK, launcher(tmp_path), SystemClock(), settings))
    samples = len(WORK.samples)
    assert events == [*["warm up"] * samples, "limit", *["run"] * samples]


def test_a_tier_is_found_to_be_as_fast_as_it_is(tmp_path: Path) -> None:
    other = ClassSpeed(factor=1.0, low=1.0, high=1.0, repetitions=1)
    before = Calibration(date="2020-01-01", share=1.0, tier_factor=0.5, speeds={"q.x": other})
    tier = asyncio.run(_calibrated(replace(EMULATED, calibration=before), WORK, tmp_path))
    assert tier.calibration is not None
    assert tier.speed_factor == tier.calibration.tier_factor == 0.5  # what is waited for
    found = tier.calibration.speeds["chain.slower"]
    # It sleeps 20 ms; half the speed on half a machine makes 80 ms of it, sleeping late aside.
    assert found.factor == pytest.approx(0.5, rel=0.4)
    assert found.low <= found.factor <= found.high
    assert found.repetitions == 3
    assert tier.calibration.share == 0.5
    assert tier.calibration.date > "2026"
    assert tier.calibration.speeds["q.x"] == other  # measured with another pipeline


def test_a_tier_that_is_not_emulated_takes_the_factor_of_all_operators(tmp_path: Path) -> None:
    tier = asyncio.run(_calibrated(Tier(name="cloud", speed_factor=7.0), WORK, tmp_path))
    # Nearly all of the seconds are those of the operator that sleeps.
    assert tier.speed_factor == pytest.approx(1.0, rel=0.4)


def test_a_worker_that_runs_already_is_called_where_it_is(tmp_path: Path) -> None:
    async def attached() -> tuple[Tier, bool]:
        starts = launcher(tmp_path)
        spec = InstanceSpec(
            key=InstanceKey("q", "p", "edge", 0),
            pipeline_reference=CHAIN,
            operators=chain.graph.operators,
            configuration=SPACE.configuration(0),
            tier=EMULATED,
            share=0.5,
        )
        running = await starts.start(spec)
        try:
            known = AttachedLauncher({"edge": running.address}, starts)
            tier = await calibrated(EMULATED, WORK, known, SystemClock(), QUICK)
            return tier, running.process.returncode is None
        finally:
            await running.stop()

    tier, still_runs = asyncio.run(attached())
    assert still_runs
    assert tier.calibration is not None
    assert tier.calibration.speeds["chain.slower"].factor == pytest.approx(0.5, rel=0.4)


def test_an_address_where_nobody_serves_is_said_to_be_so(tmp_path: Path) -> None:
    nobody = AttachedLauncher({"edge": "unix:/nobody"}, launcher(tmp_path))
    with pytest.raises(LaunchFailed, match=r"nobody serves at unix:/nobody"):
        asyncio.run(calibrated(EMULATED, WORK, nobody, SystemClock(), QUICK))


def test_tiers_of_this_computer_are_measured_once(tmp_path: Path) -> None:
    starts = Counting(launcher(tmp_path))
    tiers = [
        EMULATED,
        Tier(name="cloud", speed_factor=7.0),
        Tier(name="none", machines=0),
        Tier(name="fast", speed_factor=2.0, emulated=True),
    ]
    known = AttachedLauncher({}, starts)
    edge, cloud, none, fast = asyncio.run(all_calibrated(tiers, WORK, known, SystemClock(), QUICK))
    assert starts.tiers == ["edge"]
    assert edge.speed_factor == 0.5
    assert cloud.speed_factor == pytest.approx(1.0, rel=0.4)  # nearly all of it sleeps
    assert none == tiers[2]
    own = cloud.speed_of("chain.slower")
    assert edge.speed_of("chain.slower") == pytest.approx(own / 2)
    assert fast.speed_of("chain.slower") == pytest.approx(own)  # nothing is faster by waiting


def test_what_calling_a_worker_costs_is_measured(tmp_path: Path) -> None:
    tiers = [
        Tier(name="cloud"),
        EMULATED,
        Tier(name="bytes", call_s_per_byte=1.0),
        Tier(name="none", machines=0, call_s=0.5),
    ]
    known = AttachedLauncher({}, Unlimited(launcher(tmp_path)))
    cloud, edge, by_bytes, none = asyncio.run(
        all_calibrated(tiers, WORK, known, SystemClock(), QUICK)
    )
    # The operators sleep: what a worker's process uses is what calls cost it.
    assert 1e-4 < cloud.call_s < 2e-2
    assert cloud.call_delay_s == 0.0
    assert edge.call_s / edge.speed_factor == pytest.approx(cloud.call_s / cloud.speed_factor)
    assert by_bytes.call_s == 0.0  # all of it is charged by the byte
    assert none.call_s == 0.5


def test_where_every_worker_has_a_machine_of_its_own_each_is_measured(tmp_path: Path) -> None:
    starts = Counting(launcher(tmp_path))
    old, new, none = (MachineType(name=name) for name in ("old", "new", "none"))
    farm = Tier(name="farm", types=(old, new, replace(none, machines=0)), call_delay_s=5.0)
    tiers = [EMULATED, farm]
    known = AttachedLauncher({}, starts)
    edge, farm = asyncio.run(
        all_calibrated(tiers, WORK, known, SystemClock(), QUICK, one_computer=False)
    )
    assert starts.places == [("edge", None), ("farm", "old"), ("farm", "new")]
    assert edge.calibration is not None
    assert [each.calibration is not None for each in farm.types] == [True, True, False]
    assert 0.0 < farm.call_delay_s < 1.0  # what was measured, not what was stated


def test_of_workers_that_wait_what_calls_take_longer_than_operators_is_measured(
    tmp_path: Path,
) -> None:
    tiers = [
        Tier(name="cloud", call_s=0.5),
        EMULATED,
        Tier(name="bytes", call_s_per_byte=1.0),
        Tier(name="none", machines=0, call_s=0.5, call_delay_s=0.25),
    ]
    known = AttachedLauncher({}, launcher(tmp_path))
    cloud, edge, by_bytes, none = asyncio.run(
        all_calibrated(tiers, WORK, known, SystemClock(), QUICK)
    )
    assert [tier.call_s for tier in (cloud, edge, by_bytes)] == [0.0, 0.0, 0.0]
    assert 1e-4 < cloud.call_delay_s < 2e-2  # and nothing of the operators'
    assert edge.call_delay_s == cloud.call_delay_s  # waiting makes no call slower
    assert by_bytes.call_delay_s == cloud.call_delay_s  # their bytes were in it
    assert by_bytes.call_s_per_byte == 0.0  # and no share stretches them
    assert none == tiers[3]


def test_what_is_stated_of_calls_stays_where_operators_take_batches(tmp_path: Path) -> None:
    work = Workload(
        reference="tests.deploy.tiny_pipelines:gathering",
        pipeline=gathering,
        configurations=[ConfigurationSpace(gathering.graph).configuration(0)],
        inputs=[0.001],
    )
    tiers = [Tier(name="cloud", call_s=0.5), replace(EMULATED, call_s=0.25)]
    known = AttachedLauncher({}, Unlimited(launcher(tmp_path)))
    found = asyncio.run(all_calibrated(tiers, work, known, SystemClock(), QUICK))
    assert [tier.call_s for tier in found] == [0.5, 0.25]
    assert all(tier.calibration is not None for tier in found)


def test_a_tier_with_types_is_measured_type_by_type(tmp_path: Path) -> None:
    half = MachineType(name="half", speed_factor=0.5)
    none = MachineType(name="none", machines=0)
    tier = Tier(name="farm", emulated=True, types=(half, MachineType(name="own"), none))
    starts = Counting(launcher(tmp_path))
    known = AttachedLauncher({}, starts)
    (farm,) = asyncio.run(all_calibrated([tier], WORK, known, SystemClock(), QUICK))
    found = {each.name: each for each in farm.types}
    assert starts.tiers == ["farm"]  # both are this computer
    assert found["none"] == none
    own = found["own"].speed_of("chain.slower")
    assert found["half"].speed_of("chain.slower") == pytest.approx(own / 2)
    assert farm.speed_of("chain.slower") == found["half"].speed_of("chain.slower")


def test_a_type_whose_worker_is_named_is_measured_there(tmp_path: Path) -> None:
    tier = Tier(name="farm", types=(MachineType(name="a"), MachineType(name="b")))
    nobody = AttachedLauncher({"farm/b": "unix:/nobody"}, launcher(tmp_path))
    with pytest.raises(LaunchFailed, match=r"nobody serves at unix:/nobody"):
        asyncio.run(all_calibrated([tier], WORK, nobody, SystemClock(), QUICK))


def test_a_tier_whose_worker_is_named_is_measured_there(tmp_path: Path) -> None:
    nobody = AttachedLauncher({"edge": "unix:/nobody"}, launcher(tmp_path))
    with pytest.raises(LaunchFailed, match="edge"):
        asyncio.run(all_calibrated([EMULATED], WORK, nobody, SystemClock(), QUICK))


def test_a_worker_on_another_computer_is_called_with_certificates_only(tmp_path: Path) -> None:
    far = {"edge": "192.0.2.1:50051"}
    plain = AttachedLauncher(far, launcher(tmp_path))
    with pytest.raises(InvalidInput, match="must be a Unix socket, unix:PATH, unless TLS"):
        asyncio.run(calibrated(EMULATED, WORK, plain, SystemClock(), QUICK))
    secured = AttachedLauncher(far, launcher(tmp_path), files_in(tmp_path))
    with pytest.raises(InvalidInput, match="tls must name readable PEM files"):
        asyncio.run(calibrated(EMULATED, WORK, secured, SystemClock(), QUICK))
