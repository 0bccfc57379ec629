"""Calls about queries, their plans, deployments and requests."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Unpack

from circinus.api.client.connection import (
    Connection,
    Document,
    Refused,
    Repeat,
    body_of,
    path_part,
    query_path,
)
from circinus.api.client.submission import QueryFields, QueryInput, read_query
from circinus.api.schemas.deployments import (
    DeploymentView,
    ObjectiveList,
    ReplicasBody,
    RequestBody,
    RequestReply,
)
from circinus.api.schemas.explanation import ExplanationView, ReplanBody, WhatIfBody, WhatIfView
from circinus.api.schemas.plans import PlanList, PlanView
from circinus.api.schemas.pools import ChooseQueryPoolBody, PoolBody, PoolView, QueryPoolView
from circinus.api.schemas.progress import QueryPage, QueryView
from circinus.api.schemas.query import DataSource
from circinus.api.schemas.service import DatasetList, DatasetView
from circinus.api.schemas.violations import checked
from circinus.pipelines.io.datasets import dataset_id, packed

PAGE_SIZE = 100
CHOOSING_S = 90.0  # of a pool: the service takes a minute at most, and one at a time
MARGIN_S = 5.0  # beyond what a request itself allows
_NOT_FOUND = 404
_UPLOADS = {"jsonl": "application/jsonl", "zip": "application/zip"}


class QueryCalls(Connection):
    """Requests about queries and their data."""

    async def submit(
        self,
        query: QueryInput | None = None,
        *,
        idempotency_key: str | None = None,
        **fields: Unpack[QueryFields],
    ) -> QueryView:
        """Return the accepted query; the same key returns the same query again.

        `fields` override those of the query. A file or folder that its data names is uploaded;
        a file's names start at its folder. InvalidInput names every violation.
        """
        request, base = await asyncio.to_thread(read_query, query, fields)
        data = request.data
        if (named := data.folder or data.jsonl) is not None:
            dataset, _ = await self.hand_over(base / named)
            data = DataSource(dataset=dataset.id, on_failure=data.on_failure)
            request = request.model_copy(update={"data": data})
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return await self._send("POST", QueryView, "/v1/queries", request, headers=headers)

    async def hand_over(self, path: Path) -> tuple[DatasetView, bool]:
        """Return the data set of a file of JSON lines or a folder, and whether it was sent.

        Content that the service has is not sent again. InvalidInput names every example at fault.
        """
        kind, content = await asyncio.to_thread(packed, path)
        try:
            return await self.dataset(dataset_id(kind, content)), False
        except Refused as refusal:
            if refusal.problem.status != _NOT_FOUND:
                raise
        return await self.upload(kind, content), True

    async def upload(self, kind: str, content: bytes) -> DatasetView:
        """Return a data set of JSON lines, or of a zip; its id is that of its content."""
        headers = {"Content-Type": _UPLOADS[kind]}
        read = DatasetView.model_validate_json
        return await self.call("POST", "/v1/datasets", read, headers=headers, content=content)

    async def dataset(self, dataset: str) -> DatasetView:
        """Return one data set."""
        return await self._get(DatasetView, f"/v1/datasets/{path_part(dataset)}")

    async def datasets(self) -> DatasetList:
        """Return all data sets, the newest first."""
        return await self._get(DatasetList, "/v1/datasets")

    async def forget(self, dataset: str) -> None:
        """Delete a data set that no query uses."""
        path = f"/v1/datasets/{path_part(dataset)}"
        await self.call("DELETE", path, bytes, repeat=Repeat.UNSENT)

    async def query(self, query_id: str) -> QueryView:
        """Return one query."""
        return await self._get(QueryView, query_path(query_id))

    async def page(
        self,
        *,
        limit: int = PAGE_SIZE,
        cursor: str | None = None,
        phase: str | None = None,
        tenant: str | None = None,
        key_prefix: str | None = None,
        unfinished: bool = False,
    ) -> QueryPage:
        """Return a page of queries, newest first; `cursor`: `next_cursor` of the page before."""
        return await self._get(
            QueryPage,
            "/v1/queries",
            limit=str(limit),
            cursor=cursor,
            phase=phase,
            tenant=tenant,
            key_prefix=key_prefix,
            unfinished="true" if unfinished else None,
        )

    async def cancel(self, query_id: str) -> QueryView:
        """Return the query after asking to stop planning it."""
        return await self._send("POST", QueryView, query_path(query_id, ":cancel"))

    async def replan(self, query_id: str, body: ReplanBody | Document) -> QueryView:
        """Return the query after planning it again for other objectives or data."""
        path, changes = query_path(query_id, ":replan"), body_of(ReplanBody, body)
        return await self._send("POST", QueryView, path, changes, repeat=Repeat.UNSENT)

    async def what_if(self, query_id: str, body: WhatIfBody | Document) -> WhatIfView:
        """Return what other circumstances would do to a query; nothing is changed or measured."""
        path = query_path(query_id, ":whatif")
        return await self._send("POST", WhatIfView, path, body_of(WhatIfBody, body))

    async def plans(self, query_id: str) -> PlanList:
        """Return the Pareto set of a query."""
        return await self._get(PlanList, query_path(query_id, "/plans"))

    async def plan(self, plan_id: str) -> PlanView:
        """Return one plan."""
        return await self._get(PlanView, f"/v1/plans/{path_part(plan_id)}")

    async def explanation(self, plan_id: str) -> ExplanationView:
        """Return why a plan is what it is."""
        return await self._get(ExplanationView, f"/v1/plans/{path_part(plan_id)}/explanation")

    async def deployment(self, query_id: str) -> DeploymentView:
        """Return the deployment of a query."""
        return await self._get(DeploymentView, query_path(query_id, "/deployment"))

    async def undeploy(self, query_id: str) -> QueryView:
        """Return the query after retiring it and freeing its capacity."""
        return await self._send("DELETE", QueryView, query_path(query_id, "/deployment"))

    async def objectives(self) -> ObjectiveList:
        """Return how each query that is served fares by its requests."""
        return await self._get(ObjectiveList, "/v1/objectives")

    async def set_replicas(self, query_id: str, replicas: int) -> QueryView:
        """Return a query that has so many replicas from now on, as far as there is room."""
        body = checked(ReplicasBody, {"replicas": replicas})
        return await self._send("PUT", QueryView, query_path(query_id, "/replicas"), body)

    async def drop_replicas(self, query_id: str) -> QueryView:
        """Return a query whose replicas follow the rate of its requests from now on."""
        return await self._send("DELETE", QueryView, query_path(query_id, "/replicas"))

    async def pool(self, query_id: str) -> PoolView:
        """Return the mix of machine types that should serve a query."""
        return await self._get(PoolView, query_path(query_id, "/pool"))

    async def choose_query_pool(
        self, query_id: str, body: ChooseQueryPoolBody | Document | None = None
    ) -> QueryPoolView:
        """Return the mix of machine types that its requests call for; nothing is changed."""
        path, limits = (
            query_path(query_id, "/pool:choose"),
            body_of(ChooseQueryPoolBody, body or {}),
        )
        return await self._send("POST", QueryPoolView, path, limits, timeout=CHOOSING_S)

    async def set_pool(
        self, query_id: str, slices: Mapping[str, Mapping[str, int]], *, follow: bool = False
    ) -> PoolView:
        """Return the pool of a query that is served by it from now on: tier -> type -> slices.

        `follow`: it is chosen anew and changed when requests have become other ones.
        """
        wanted = {tier: dict(types) for tier, types in slices.items()}
        body = checked(PoolBody, {"slices": wanted, "follow": follow})
        return await self._send("PUT", PoolView, query_path(query_id, "/pool"), body)

    async def drop_pool(self, query_id: str) -> QueryView:
        """Return a query that is served by its plan's own replicas from now on."""
        return await self._send("DELETE", QueryView, query_path(query_id, "/pool"))

    async def request(self, query_id: str, body: RequestBody | Document) -> RequestReply:
        """Return the answer of the deployed plan. Once sent it is not sent again by itself."""
        return await self._request(query_path(query_id, "/requests"), body)

    async def _request(self, path: str, body: RequestBody | Document) -> RequestReply:
        """Return the answer to one request of a query or route."""
        request = body_of(RequestBody, body)
        timeout_s = request.timeout_s + MARGIN_S
        return await self._send(
            "POST", RequestReply, path, request, repeat=Repeat.UNSENT, timeout=timeout_s
        )
