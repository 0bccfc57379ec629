"""Makes a cluster be as rendered: looks, checks the room, writes, waits, prunes, remembers.

Every step can be repeated: applying again after any failure goes on from what is there. A new plan
starts beside the old one, which goes when the new one is ready, unless there is no room for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from deploy.kubernetes.api import Cluster, Object
from deploy.kubernetes.capacity import free_of, shortage
from deploy.kubernetes.difference import Difference, difference, key_of
from deploy.kubernetes.errors import Forbidden
from deploy.kubernetes.history import KEPT, Revision, record_of, revisions
from deploy.kubernetes.inventory import COLLECTIONS, Listed, deployed, path_of
from deploy.kubernetes.manifests import Rendered
from deploy.kubernetes.names import QUERY, label_value, selector_of
from deploy.kubernetes.outcome import Outcome, State, in_words, state_of
from deploy.kubernetes.readiness import failure_of, is_ready, ready_replicas, why_waiting
from pipelines import checks
from pipelines.clock import Clock
from pipelines.errors import CircinusError, InvalidInput, Unavailable

Result = TypeVar("Result")
_POLL_S = 0.5
_WRITERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """How far to go.

    Attributes:
        timeout_s: For writing and becoming ready together, `> 0`. 300: a worker may load a model.
        force: Take over fields that other field managers own.
    """

    timeout_s: float = 300.0
    force: bool = False

    def __post_init__(self) -> None:
        checks.positive("timeout_s", self.timeout_s)


class _Failed(Exception):
    """Ends a rollout with a state."""

    def __init__(self, state: State, words: str) -> None:
        self.state = state
        self.words = words
        super().__init__(words)


@dataclass(slots=True)
class _Work:
    """A rollout on its way."""

    wanted: dict[str, Object]
    found: Difference
    deadline: float
    applied: list[str] = field(default_factory=list)
    pruned: list[str] = field(default_factory=list)
    gap_from: float | None = None

    def outcome(self, state: State, words: str = "") -> Outcome:
        done = set(self.applied)
        return Outcome(
            state=state,
            words=words,
            applied=tuple(self.applied),
            missing=tuple(sorted(self.found.to_apply - done)),
            pruned=tuple(self.pruned),
            unchanged=self.found.unchanged,
        )


class Rollout:
    """Deploys plans into a namespace. Calls block."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        clock: Clock,
        settings: RolloutSettings | None = None,
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Make one.

        Args:
            cluster: Where.
            namespace: Of all objects.
            clock: For waiting.
            settings: None takes the defaults.
            tell: Hears of progress, in words.
        """
        self._cluster = cluster
        self._namespace = namespace
        self._clock = clock
        self._settings = settings or RolloutSettings()
        self._tell = tell

    def diff(self, rendered: Sequence[Rendered]) -> Difference:
        """Give what `apply` would do.

        Raises:
            ClusterRefused: If the cluster says no.
            Unavailable: If it does not answer.
        """
        return self._compared(rendered)[0]

    def preview(self, rendered: Sequence[Rendered]) -> Outcome:
        """Let the server check everything that would be written, without writing."""
        try:
            found, wanted, _ = self._compared(rendered)
            work = _Work(wanted, found, self._deadline())
            self._write(work, dry_run=True)
        except CircinusError as error:
            return _refused(error)
        except _Failed as failed:
            return work.outcome(failed.state, failed.words)
        return work.outcome(State.PREVIEW)

    def apply(self, rendered: Sequence[Rendered]) -> Outcome:
        """Make the cluster be as rendered, for these queries; others are left alone.

        Whatever fails is told by the outcome, with what was written until then.
        """
        deadline = self._deadline()
        try:
            found, wanted, records = self._compared(rendered, self._patient(deadline))
        except CircinusError as error:
            return _refused(error)
        work = _Work(wanted, found, deadline)
        try:
            return self._carried_out(rendered, work, revisions(records))
        except _Failed as failed:
            words = failed.words if not work.applied else f"{failed.words} {_HALF_DONE}"
            return work.outcome(failed.state, words)
        except CircinusError as error:
            state = state_of(error)
            return work.outcome(state, in_words(state, error))

    def rollback(self, query_id: str, number: int | None = None) -> Outcome:
        """Apply an earlier revision of a query again; None: the last one of another content.

        Raises:
            InvalidInput: If there is none.
            ClusterRefused: If the cluster says no.
            Unavailable: If it does not answer.
        """
        found = self.history(query_id)
        if number is None:
            earlier = [r for r in found if r.rendered.objects != found[-1].rendered.objects]
            chosen = earlier[-1] if earlier else None
        else:
            chosen = next((r for r in found if r.number == number), None)
        if chosen is None:
            known = ", ".join(str(r.number) for r in found) or "none"
            raise InvalidInput.of("revision", f"must be among those kept ({known})", number)
        self._tell(f"back to revision {chosen.number}, plan {chosen.rendered.plan_id}")
        return self.apply([chosen.rendered])

    def history(self, query_id: str) -> list[Revision]:
        """Give the revisions of a query, the oldest first."""
        return revisions(deployed(self._cluster.listed, self._namespace, query_id)[1])

    def live(self, query_id: str | None = None) -> dict[str, Object]:
        """Give the objects of a query's plans, or of everybody's, by key."""
        return deployed(self._cluster.listed, self._namespace, query_id)[0]

    def delete(self, query_id: str) -> tuple[str, ...]:
        """Delete everything of a query, its history too; give the keys.

        Raises:
            ClusterRefused: If the cluster says no; what was not deleted is found again.
            Unavailable: If it does not answer.
        """
        objects, records = deployed(self._cluster.listed, self._namespace, query_id)
        keys = [*objects, *(f"ConfigMap/{r['metadata']['name']}" for r in records)]
        for key in keys:
            self._delete(key, self._deadline())
        return tuple(keys)

    def _carried_out(
        self, rendered: Sequence[Rendered], work: _Work, before: Sequence[Revision]
    ) -> Outcome:
        self._make_room(work)
        self._write(work)
        self._wait(work)
        gap = None if work.gap_from is None else self._clock.now() - work.gap_from
        if gap is not None:
            self._tell(f"no plan served for {gap:.1f} s")
        self._prune(work, work.found.prune)
        number = None
        if work.applied or work.pruned:
            number = self._remember(rendered, before, work.deadline)
        return replace(work.outcome(State.READY), revision=number, gap_s=gap)

    def _compared(
        self, rendered: Sequence[Rendered], listed: Listed | None = None
    ) -> tuple[Difference, dict[str, Object], list[Object]]:
        wanted = {key_of(document): document for each in rendered for document in each.objects}
        one = rendered[0].query_id if len(rendered) == 1 else None
        live, records = deployed(listed or self._cluster.listed, self._namespace, one)
        queries = {label_value(each.query_id) for each in rendered}
        mine = {k: o for k, o in live.items() if o["metadata"]["labels"][QUERY] in queries}
        history = [r for r in records if r["metadata"]["labels"][QUERY] in queries]
        return difference(wanted.values(), mine), wanted, history

    def _make_room(self, work: _Work) -> None:
        new = [work.wanted[c.key] for c in work.found.create if c.key.startswith("Deployment/")]
        if not new:
            return
        try:
            listed = self._patient(work.deadline)
            nodes, pods = (listed(p)["items"] for p in ("/api/v1/nodes", "/api/v1/pods"))
        except Forbidden as error:
            self._tell(f"room on the nodes is not checked: {error}")
            return
        told = shortage(new, nodes, free_of(nodes, pods))
        if not told:
            return
        old = [key for key in work.found.prune if key.startswith("Deployment/")]
        names = [key.split("/")[1] for key in old]
        if not old or shortage(new, nodes, free_of(nodes, pods, without=names)):
            raise _Failed(State.CAPACITY, f"{told} Nothing was changed.")
        self._tell(
            f"no room for both plans ({told}): the old one goes first, a gap until it is ready"
        )
        work.gap_from = self._clock.now()
        self._prune(work, old)

    def _write(self, work: _Work, *, dry_run: bool = False) -> None:
        keys = [key for key in work.wanted if key in work.found.to_apply]

        def write(key: str) -> CircinusError | None:
            try:
                self._retried(lambda: self._put(key, work.wanted[key], dry_run), work.deadline)
            except CircinusError as error:
                return error
            work.applied.append(key)
            return None

        # Workers come last, so that what guards and finds them is there before they are.
        first = [key for key in keys if not key.startswith("Deployment/")]
        for batch in (first, [key for key in keys if key.startswith("Deployment/")]):
            with ThreadPoolExecutor(max_workers=_WRITERS) as writers:
                failures = [error for error in writers.map(write, batch) if error is not None]
            if failures:
                state = state_of(failures[0])
                raise _Failed(state, in_words(state, failures[0]))

    def _put(self, key: str, document: Object, dry_run: bool) -> None:
        path = path_of(self._namespace, key)
        self._cluster.apply(path, document, force=self._settings.force, dry_run=dry_run)

    def _wait(self, work: _Work) -> None:
        wanted = {key for key in work.wanted if key.startswith("Deployment/")}
        said = (-1, -1)
        while True:
            mine = self._deployments(work, wanted)
            if len(mine) == len(wanted) and all(map(is_ready, mine)):
                return
            for failure in filter(None, map(failure_of, mine)):
                raise _Failed(failure[0], in_words(*failure))
            if self._clock.now() > work.deadline:
                raise _Failed(*self._why(mine))
            counts = ready_replicas(mine)
            if counts != said:
                self._tell(f"{counts[0]} of {counts[1]} workers ready")
                said = counts
            self._clock.sleep(_POLL_S)

    def _deployments(self, work: _Work, wanted: Iterable[str]) -> list[Object]:
        path = COLLECTIONS["Deployment"].format(namespace=self._namespace)
        queries = {d["metadata"]["labels"][QUERY] for d in work.wanted.values()}
        chosen = selector_of(query=min(queries)) if len(queries) == 1 else selector_of()
        found = self._patient(work.deadline)(path, labelSelector=chosen)["items"]
        keys = set(wanted)
        return [item for item in found if f"Deployment/{item['metadata']['name']}" in keys]

    def _why(self, deployments: Iterable[Object]) -> tuple[State, str]:
        late = [d["metadata"]["name"] for d in deployments if not is_ready(d)]
        chosen = f"circinus.io/group in ({','.join(late[:20])})"
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        pods = self._cluster.listed(path, labelSelector=chosen)["items"] if late else []
        state, words = why_waiting(pods)
        return state, f"not ready within {self._settings.timeout_s:g} s: {words}"

    def _prune(self, work: _Work, keys: Iterable[str]) -> None:
        for key in keys:
            if key not in work.pruned:
                self._delete(key, work.deadline)
                work.pruned.append(key)

    def _delete(self, key: str, deadline: float) -> None:
        path = path_of(self._namespace, key)
        self._retried(lambda: self._cluster.delete(path), deadline)

    def _remember(
        self, rendered: Sequence[Rendered], before: Sequence[Revision], deadline: float
    ) -> int:
        number = 0
        for each in rendered:
            mine = [r for r in before if r.rendered.query_id == each.query_id]
            number = mine[-1].number + 1 if mine else 1
            record = record_of(each, number)
            path = path_of(self._namespace, key_of(record))
            self._retried(
                lambda p=path, r=record: self._cluster.apply(p, r, force=True),  # type: ignore[misc]  # defaults bind them
                deadline,
            )
            for old in mine[: max(0, len(mine) + 1 - KEPT)]:
                self._delete(f"ConfigMap/{old.name}", deadline)
        return number

    def _patient(self, deadline: float) -> Listed:
        def listed(path: str, **query: str) -> Object:
            return self._retried(lambda: self._cluster.listed(path, **query), deadline)

        return listed

    def _retried(self, call: Callable[[], Result], deadline: float) -> Result:
        """Give what a call gives, tried again while the cluster cannot answer."""
        while True:
            try:
                return call()
            except Unavailable as error:
                pause = min(error.retry_after_s, 5.0)
                if self._clock.now() + pause > deadline:
                    raise
                self._tell(str(error))
                self._clock.sleep(pause)

    def _deadline(self) -> float:
        return self._clock.now() + self._settings.timeout_s


_HALF_DONE = (
    "What was written stays, and so does the plan before, if there was one: "
    "apply again, roll back or delete."
)


def _refused(error: CircinusError) -> Outcome:
    state = state_of(error)
    return Outcome(state=state, words=in_words(state, error))


def readiness(live: Mapping[str, Object]) -> dict[str, tuple[int, int]]:
    """Give (ready, wanted) replicas of the Deployments among objects, by name."""
    return {
        key.split("/")[1]: ready_replicas([document])
        for key, document in live.items()
        if key.startswith("Deployment/")
    }
