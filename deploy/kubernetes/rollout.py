"""Makes a cluster be as rendered: looks, checks the room, writes, waits, prunes, remembers.

Every step can be repeated: applying again after any failure goes on from what is there. A new plan
starts beside the old one, which goes when the new one is ready, unless there is no room for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from circinus.deploy.kubernetes.api import Cluster, Forbidden, Object, collection_of, path_of
from circinus.deploy.kubernetes.capacity.paging import in_pages
from circinus.deploy.kubernetes.inventory import (
    KEPT,
    Difference,
    Revision,
    deployed,
    difference,
    key_of,
    record_of,
    revisions,
)
from circinus.deploy.kubernetes.manifests import Rendered
from circinus.deploy.kubernetes.names import GROUP, QUERY, label_value, selector_of
from circinus.deploy.kubernetes.nodes import NODES, PODS, free_of, shortage
from circinus.deploy.kubernetes.outcome import (
    RolloutOutcome,
    State,
    failure_of,
    in_words,
    is_ready,
    ready_replicas,
    told_of,
    why_waiting,
)
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError, InvalidInput, Unavailable

Result = TypeVar("Result")
_POLL_S = 0.5
_WRITERS = 8
_WORKERS = "Deployment/"
_HALF_DONE = (
    "What was written stays, and so does the plan before, if there was one: "
    "apply again, roll back or delete."
)


@dataclass(eq=False)
class _Failed(Exception):
    """Ends a rollout with a state."""

    state: State
    words: str


@dataclass(slots=True)
class _Work:
    """A rollout on its way, that asks the cluster again while it cannot answer."""

    rollout: Rollout
    deadline: float
    wanted: dict[str, Object] = field(default_factory=dict)
    found: Difference = field(default_factory=Difference)
    applied: list[str] = field(default_factory=list)
    pruned: list[str] = field(default_factory=list)
    gap_from: float | None = None

    def listed(self, path: str, **query: str) -> Object:
        return self._retried(lambda: self.rollout.cluster.listed(path, **query))

    def apply(self, document: Object, *, force: bool, dry_run: bool = False) -> None:
        path, cluster = path_of(self.rollout.namespace, key_of(document)), self.rollout.cluster
        self._retried(lambda: cluster.apply(path, document, force=force, dry_run=dry_run))

    def delete(self, key: str) -> None:
        path = path_of(self.rollout.namespace, key)
        self._retried(lambda: self.rollout.cluster.delete(path))

    def _retried(self, call: Callable[[], Result]) -> Result:
        while True:
            try:
                return call()
            except Unavailable as error:
                pause = min(error.retry_after_s, 5.0)
                if self.rollout.clock.now() + pause > self.deadline:
                    raise
                self.rollout.tell(str(error))
                self.rollout.clock.sleep(pause)

    def outcome(self, state: State, words: str = "") -> RolloutOutcome:
        return RolloutOutcome(
            state=state,
            words=words,
            applied=tuple(self.applied),
            missing=tuple(sorted(self.found.to_apply.difference(self.applied))),
            pruned=tuple(self.pruned),
            unchanged=self.found.unchanged,
        )

    def prune(self, keys: Iterable[str]) -> None:
        for key in keys:
            if key not in self.pruned:
                self.delete(key)
                self.pruned.append(key)


@dataclass(frozen=True, slots=True)
class Rollout:
    """Deploys plans into a namespace. Calls block.

    All but `apply` and `preview`, whose outcomes tell of it, raise as `Cluster` does.
    """

    cluster: Cluster
    namespace: str
    clock: Clock
    timeout_s: float = 300.0  # to write and get ready, `> 0`. 300: a worker may load a model
    force: bool = False  # take over fields that other field managers own
    tell: Callable[[str], object] = lambda _: None  # hears of progress, in words

    def __post_init__(self) -> None:
        checks.positive("timeout_s", self.timeout_s)

    def diff(self, rendered: Sequence[Rendered]) -> Difference:
        """Return what `apply` would do."""
        return self._compared(rendered, self.cluster.listed)[0]

    def preview(self, rendered: Sequence[Rendered]) -> RolloutOutcome:
        """Let the server check everything that would be written, without writing."""
        work = self._begun()
        try:
            work.found, work.wanted, _ = self._compared(rendered, self.cluster.listed)
            self._write(work, dry_run=True)
        except _Failed as failed:
            return work.outcome(failed.state, failed.words)
        except CircinusError as error:
            return work.outcome(*told_of(error))
        return work.outcome(State.PREVIEW)

    def apply(self, rendered: Sequence[Rendered]) -> RolloutOutcome:
        """Make the cluster be as rendered, for these queries; others are left alone.

        Whatever fails is told by the outcome, with what was written until then.
        """
        work = self._begun()
        try:
            work.found, work.wanted, records = self._compared(rendered, work.listed)
            before = revisions(records)
            self._make_room(work)
            self._write(work)
            self._wait(work)
            gap = None if work.gap_from is None else self.clock.now() - work.gap_from
            if gap is not None:
                self.tell(f"no plan served for {gap:.1f} s")
            work.prune(work.found.prune)
            changed = work.applied or work.pruned
            number = _remember(work, rendered, before) if changed else None
            return replace(work.outcome(State.READY), revision=number, gap_s=gap)
        except _Failed as failed:
            words = failed.words if not work.applied else f"{failed.words} {_HALF_DONE}"
            return work.outcome(failed.state, words)
        except CircinusError as error:
            return work.outcome(*told_of(error))

    def rollback(self, query_id: str, number: int | None = None) -> RolloutOutcome:
        """Apply an earlier revision, None: the last unlike this; InvalidInput if there is none."""
        found = self.history(query_id)
        if number is None:
            chosen = [r for r in found if r.rendered.objects != found[-1].rendered.objects]
        else:
            chosen = [r for r in found if r.number == number]
        if not chosen:
            known = ", ".join(str(r.number) for r in found) or "none"
            raise InvalidInput.of("revision", f"must be among those kept ({known})", number)
        self.tell(f"back to revision {chosen[-1].number}, plan {chosen[-1].rendered.plan_id}")
        return self.apply([chosen[-1].rendered])

    def history(self, query_id: str) -> list[Revision]:
        """Return the revisions of a query, the oldest first."""
        return revisions(deployed(self.cluster.listed, self.namespace, query_id)[1])

    def live(self, query_id: str) -> dict[str, Object]:
        """Return the objects of a query's plans, by key."""
        return deployed(self.cluster.listed, self.namespace, query_id)[0]

    def delete(self, query_id: str) -> tuple[str, ...]:
        """Delete everything of a query, its history too; give the keys. It may be called again."""
        objects, records = deployed(self.cluster.listed, self.namespace, query_id)
        keys = [*objects, *(f"ConfigMap/{r['metadata']['name']}" for r in records)]
        for key in keys:
            self._begun().delete(key)
        return tuple(keys)

    def _begun(self) -> _Work:
        return _Work(self, self.clock.now() + self.timeout_s)

    def _compared(
        self, rendered: Sequence[Rendered], listed: Callable[..., Object]
    ) -> tuple[Difference, dict[str, Object], list[Object]]:
        wanted = {key_of(document): document for each in rendered for document in each.objects}
        one = rendered[0].query_id if len(rendered) == 1 else None
        live, records = deployed(listed, self.namespace, one)
        queries = {label_value(each.query_id) for each in rendered}
        mine = {k: o for k, o in live.items() if o["metadata"]["labels"][QUERY] in queries}
        history = [r for r in records if r["metadata"]["labels"][QUERY] in queries]
        return difference(wanted.values(), mine), wanted, history

    def _make_room(self, work: _Work) -> None:
        new = [work.wanted[key] for key in work.found.create if key.startswith(_WORKERS)]
        if not new:
            return
        try:
            nodes, pods = (in_pages(work.listed, path)["items"] for path in (NODES, PODS))
        except Forbidden as error:
            self.tell(f"room on the nodes is not checked: {error}")
            return
        told = shortage(new, nodes, free_of(nodes, pods))
        if not told:
            return
        old = [key for key in work.found.prune if key.startswith(_WORKERS)]
        names = [key.removeprefix(_WORKERS) for key in old]
        if not old or shortage(new, nodes, free_of(nodes, pods, without=names)):
            raise _Failed(State.CAPACITY, f"{told} Nothing was changed.")
        self.tell(
            f"no room for both plans ({told}): the old one goes first, a gap until it is ready"
        )
        work.gap_from = self.clock.now()
        work.prune(old)

    def _write(self, work: _Work, *, dry_run: bool = False) -> None:
        def write(key: str) -> CircinusError | None:
            try:
                work.apply(work.wanted[key], force=self.force, dry_run=dry_run)
            except CircinusError as error:
                return error
            work.applied.append(key)
            return None

        keys = [key for key in work.wanted if key in work.found.to_apply]
        workers = [key for key in keys if key.startswith(_WORKERS)]
        # Workers come last, so that what guards and finds them is there before they are.
        for batch in ([key for key in keys if not key.startswith(_WORKERS)], workers):
            with ThreadPoolExecutor(max_workers=_WRITERS) as writers:
                failures = [error for error in writers.map(write, batch) if error is not None]
            if failures:
                raise _Failed(*told_of(failures[0]))

    def _wait(self, work: _Work) -> None:
        wanted = {key for key in work.wanted if key.startswith(_WORKERS)}
        queries = {d["metadata"]["labels"][QUERY] for d in work.wanted.values()}
        chosen = selector_of({QUERY: min(queries)} if len(queries) == 1 else {})
        path = collection_of("Deployment", self.namespace)
        said = (-1, -1)
        while True:
            found = work.listed(path, labelSelector=chosen)["items"]
            mine = [item for item in found if _WORKERS + item["metadata"]["name"] in wanted]
            if len(mine) == len(wanted) and all(map(is_ready, mine)):
                return
            for state, cause in filter(None, map(failure_of, mine)):
                raise _Failed(state, in_words(state, cause))
            if self.clock.now() > work.deadline:
                raise _Failed(*self._why(mine))
            counts = ready_replicas(mine)
            if counts != said:
                self.tell(f"{counts[0]} of {counts[1]} workers ready")
                said = counts
            self.clock.sleep(_POLL_S)

    def _why(self, deployments: Iterable[Object]) -> tuple[State, str]:
        late = [d["metadata"]["name"] for d in deployments if not is_ready(d)]
        chosen = f"{GROUP} in ({','.join(late[:20])})"
        path = collection_of("Pod", self.namespace)
        pods = self.cluster.listed(path, labelSelector=chosen)["items"] if late else []
        state, words = why_waiting(pods)
        return state, f"not ready within {self.timeout_s:g} s: {words}"


def _remember(work: _Work, rendered: Sequence[Rendered], before: Sequence[Revision]) -> int:
    number = 0
    for each in rendered:
        mine = [r for r in before if r.rendered.query_id == each.query_id]
        number = mine[-1].number + 1 if mine else 1
        work.apply(record_of(each, number), force=True)
        for old in mine[: max(0, len(mine) + 1 - KEPT)]:
            work.delete(f"ConfigMap/{old.name}")
    return number


def readiness(live: Mapping[str, Object]) -> dict[str, tuple[int, int]]:
    """Return (ready, wanted) replicas of the Deployments among objects, by name."""
    return {
        key.removeprefix(_WORKERS): ready_replicas([document])
        for key, document in live.items()
        if key.startswith(_WORKERS)
    }
