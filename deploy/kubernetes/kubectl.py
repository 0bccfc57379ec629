"""`kubectl`: compares, applies and deletes the objects of a plan, in its own words.

A new plan has names of its own, so it starts beside the plan before, which goes when it is ready.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.diagnosis import why_not_ready
from circinus.deploy.kubernetes.manifests import Rendered
from circinus.deploy.kubernetes.names import FIELD_MANAGER, PLAN, QUERY, label_value, selector_of
from circinus.deploy.kubernetes.ownership import RELEASE
from circinus.pipelines.errors import CircinusError, InvalidInput

_KINDS = "configmap,networkpolicy,service,poddisruptionbudget,deployment"
_MANAGER = ("--server-side", f"--field-manager={FIELD_MANAGER}", "-f", "-")


class KubectlFailed(CircinusError):
    """`kubectl` failed; the message is its own."""


class NotReady(CircinusError):
    """The workers of a plan were not ready in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubectl:
    """Objects of `circinus deploy` in a namespace; those of a release are left alone.

    Every method raises InvalidInput where kubectl is not installed, and KubectlFailed.
    """

    namespace: str
    kubeconfig: Path | None = None  # None: as kubectl chooses

    def diff(self, rendered: Rendered) -> tuple[str, tuple[str, ...]]:
        """Return how objects would change, as a unified diff, and which would be deleted."""
        # It exits with 1 if objects differ, and with more if it fails.
        changes = self._run(
            "diff", "--force-conflicts", *_MANAGER, text=rendered.as_yaml(), most=1
        )
        return changes, self._obsolete(rendered)

    def preview(self, rendered: Rendered) -> tuple[str, ...]:
        """Check all objects on the server without writing; return what would be written."""
        return self._names("apply", "--dry-run=server", *_MANAGER, text=rendered.as_yaml())

    def apply(
        self, rendered: Rendered, *, timeout_s: float, force: bool
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Write all objects, wait for the workers, then delete what the plan before left.

        Return what was written and what was deleted. NotReady if workers are not ready in time:
        then nothing is deleted.
        """
        taking = ("--force-conflicts",) if force else ()
        written = self._names("apply", *taking, *_MANAGER, text=rendered.as_yaml())
        own = f"{_selector(rendered.query_id)},{PLAN}={label_value(rendered.plan_id)}"
        try:
            wait = f"--timeout={timeout_s:g}s"
            self._run("rollout", "status", "deployment", f"--selector={own}", wait)
        except KubectlFailed as error:
            pods = self._listed("pods", f"{PLAN}={label_value(rendered.plan_id)}")
            raise NotReady(f"{error}\n{why_not_ready(pods)}") from error
        obsolete = self._obsolete(rendered)
        if obsolete:
            self._run("delete", "--wait=false", "--ignore-not-found", *obsolete)
        return written, obsolete

    def workers(self, query_id: str) -> dict[str, tuple[int, int]]:
        """Return how many workers are ready, and how many should be, by Deployment of a query."""
        return {
            each["metadata"]["name"]: (
                (each.get("status") or {}).get("readyReplicas", 0),
                each["spec"].get("replicas", 1),
            )
            for each in self._listed("deployments", _selector(query_id))
        }

    def delete(self, query_id: str) -> tuple[str, ...]:
        """Delete everything of a query; return its names. It may be called again."""
        return self._names("delete", _KINDS, f"--selector={_selector(query_id)}", "--wait=false")

    def _obsolete(self, rendered: Rendered) -> tuple[str, ...]:
        """Return the names of the objects of a query that are not rendered any more."""
        wanted = {
            f"{each['kind'].lower()}/{each['metadata']['name']}" for each in rendered.objects
        }
        there = self._names("get", _KINDS, f"--selector={_selector(rendered.query_id)}")
        return tuple(name for name in there if _without_group(name) not in wanted)

    def _listed(self, kind: str, selector: str) -> Sequence[Object]:
        text = self._run("get", kind, f"--selector={selector}", "-o", "json")
        items: Sequence[Object] = json.loads(text)["items"]
        return items

    def _names(self, *words: str, text: str | None = None) -> tuple[str, ...]:
        lines = self._run(*words, "-o", "name", text=text).splitlines()
        return tuple(line for line in lines if "/" in line)

    def _run(self, *words: str, text: str | None = None, most: int = 0) -> str:
        """Return what kubectl writes; `most` is the largest code with which it exits in order."""
        program = shutil.which("kubectl")
        if program is None:
            rule = (
                "must be installed, or what `circinus deploy render` prints be applied elsewhere"
            )
            raise InvalidInput.of("kubectl", rule, None)
        way = ["--namespace", self.namespace]
        way += [] if self.kubeconfig is None else ["--kubeconfig", str(self.kubeconfig)]
        done = subprocess.run(
            [program, *words, *way], input=text, capture_output=True, text=True, check=False
        )
        if done.returncode > most or done.returncode < 0:
            raise KubectlFailed(done.stderr.strip() or f"kubectl exits with {done.returncode}")
        return done.stdout


def _selector(query_id: str) -> str:
    return f"{selector_of({QUERY: label_value(query_id)})},!{RELEASE}"


def _without_group(name: str) -> str:
    """Return `kind/name` of the `kind.group/name` that kubectl writes."""
    kind, _, rest = name.partition("/")
    return f"{kind.partition('.')[0]}/{rest}"
