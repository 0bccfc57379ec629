"""`circinus credentials`: the missing secrets that a release of the chart needs."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from circinus.api.cli.options import PodKubeconfig
from circinus.api.text.screen import Screen

_SECRET = "Secret to be filled in:"


def credentials(
    screen: Screen,
    namespace: Annotated[str | None, "Of the Secrets; default: the pod's own."] = None,
    kubeconfig: PodKubeconfig = None,
    token: Annotated[
        str | None, Option(metavar="SECRET", help=f"{_SECRET} what clients show.")
    ] = None,
    authority: Annotated[
        str | None, Option(metavar="SECRET", help=f"{_SECRET} what signs the next two.")
    ] = None,
    workers: Annotated[
        str | None, Option(metavar="SECRET", help=f"{_SECRET} workers' certificate.")
    ] = None,
    service: Annotated[
        str | None, Option(metavar="SECRET", help=f"{_SECRET} of who calls workers.")
    ] = None,
    days: Annotated[int, "That certificates are good for."] = 365,
) -> None:
    """Fill in Secrets of a release: token and workers' certificates, once.

    What is there stays. A certificate with less than a third of its days left is made anew.
    """
    # The Kubernetes client: only in this command
    from circinus.deploy.kubernetes.api import Cluster, connect, own_namespace
    from circinus.deploy.kubernetes.credentials import CredentialNames, fill_in

    names = CredentialNames(
        token=token, authority=authority, workers=workers, service=service, days=days
    )
    written = fill_in(Cluster(connect(kubeconfig)), namespace or own_namespace(), names)
    lines = [f"made: {name}" for name in written] or ["nothing to make"]
    screen.show("\n".join(lines), document={"made": written})
