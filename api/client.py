"""The service from outside: its HTTP interface as methods, its problems as typed errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import httpx
from pydantic import BaseModel, RootModel, ValidationError

from circinus.api.schemas import service
from circinus.api.schemas.base import HealthView, ProblemDetails
from circinus.api.schemas.datasets import DatasetList, DatasetView
from circinus.api.schemas.explanation import ExplanationView, ReplanBody, WhatIfBody, WhatIfView
from circinus.api.schemas.planning import MethodView
from circinus.api.schemas.plans import PlanList, PlanView
from circinus.api.schemas.progress import QueryPage, QueryView
from circinus.api.schemas.query import QueryRequest
from circinus.api.schemas.schedule import ScheduleView
from circinus.pipelines.dataset_files import dataset_id, packed
from circinus.pipelines.errors import CircinusError, InvalidInput, Unavailable

TIMEOUT_S = 30.0
PAGE_SIZE = 100
_RETRY_AFTER_S = 1.0
_NOT_FOUND = 404
_BROKEN_RULES = frozenset({400, 413, 415, 422})

Answer = TypeVar("Answer", bound=BaseModel)


class _Document(RootModel[dict[str, object]]):
    """A body or an answer without a schema of its own."""


class Refused(CircinusError):
    """The service answered with a problem that is no broken rule of an input."""

    def __init__(self, problem: ProblemDetails) -> None:
        self.problem = problem  # its document
        super().__init__(problem.detail or problem.title)


class Client(AbstractContextManager["Client"]):
    """A service at one address. Use it as a context manager.

    Every method raises InvalidInput for an input that breaks rules, Refused for any other
    problem that the service names, and Unavailable when it cannot answer now.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            self._http = httpx.Client(
                base_url=base_url,
                headers=headers,
                timeout=TIMEOUT_S,
                transport=transport,
                trust_env=False,
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise InvalidInput.of("url", f"must be a URL ({error})", base_url) from error
        self.base_url = base_url

    def __exit__(self, *error: object) -> None:
        """Close the connections."""
        self._http.close()

    def health(self) -> HealthView:
        """Give the version of a service that is there, if not ready."""
        return self._ask(HealthView, "/healthz")

    def ready(self) -> HealthView:
        """Give the same of a service that can take queries; Refused with the reason if not."""
        return self._ask(HealthView, "/readyz")

    def submit(self, request: QueryRequest, *, idempotency_key: str | None = None) -> QueryView:
        """Give the accepted query; the same key gives the same query again."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return self._ask(QueryView, "/v1/queries", "POST", request, headers=headers)

    def hand_over(self, path: Path) -> tuple[DatasetView, bool]:
        """Give the data set of a file of JSON lines or a folder, and whether it was sent.

        Content that the service has is not sent again. InvalidInput names every example at fault.
        """
        kind, content = packed(path)
        try:
            return self.dataset(dataset_id(kind, content)), False
        except Refused as refusal:
            if refusal.problem.status != _NOT_FOUND:
                raise
        headers = {"Content-Type": {"jsonl": "application/jsonl", "zip": "application/zip"}[kind]}
        sent = self._sent("/v1/datasets", "POST", content=content, headers=headers)
        return self._read(DatasetView, sent), True

    def dataset(self, dataset: str) -> DatasetView:
        """Give one data set."""
        return self._ask(DatasetView, f"/v1/datasets/{_part(dataset)}")

    def datasets(self) -> DatasetList:
        """Give all data sets, the newest first."""
        return self._ask(DatasetList, "/v1/datasets")

    def forget(self, dataset: str) -> None:
        """Forget a data set that no query uses."""
        self._sent(f"/v1/datasets/{_part(dataset)}", "DELETE")

    def query(self, query_id: str) -> QueryView:
        """Give one query."""
        return self._ask(QueryView, _query(query_id))

    def all_queries(
        self, *, phase: str | None = None, tenant: str | None = None, key_prefix: str | None = None
    ) -> Iterator[QueryView]:
        """Give every query, newest first, page after page."""
        chosen = {"phase": phase, "tenant": tenant, "key_prefix": key_prefix}
        params = {"limit": str(PAGE_SIZE)} | {n: v for n, v in chosen.items() if v is not None}
        while True:
            page = self._ask(QueryPage, "/v1/queries", params=params)
            yield from page.items
            if page.next_cursor is None:
                return
            params["cursor"] = page.next_cursor

    def cancel(self, query_id: str) -> QueryView:
        """Give the query after asking to stop planning it."""
        return self._ask(QueryView, _query(query_id, ":cancel"), "POST")

    def plans(self, query_id: str) -> PlanList:
        """Give the Pareto set of a query."""
        return self._ask(PlanList, _query(query_id, "/plans"))

    def plan(self, plan_id: str) -> PlanView:
        """Give one plan."""
        return self._ask(PlanView, f"/v1/plans/{_part(plan_id)}")

    def explanation(self, plan_id: str) -> ExplanationView:
        """Give why a plan is what it is."""
        return self._ask(ExplanationView, f"/v1/plans/{_part(plan_id)}/explanation")

    def what_if(self, query_id: str, body: WhatIfBody) -> WhatIfView:
        """Give what other circumstances would do to a query."""
        return self._ask(WhatIfView, _query(query_id, ":whatif"), "POST", body)

    def replan(self, query_id: str, body: ReplanBody) -> QueryView:
        """Give the query after planning it again for other objectives or data."""
        return self._ask(QueryView, _query(query_id, ":replan"), "POST", body)

    def schedule(self) -> ScheduleView:
        """Give the schedule, with what requests got lately."""
        return self._ask(ScheduleView, "/v1/schedule", params={"observed": "true"})

    def problem(self) -> dict[str, object]:
        """Give the scheduling problem as it stands, in the form that studies read."""
        return self._ask(_Document, "/v1/schedule/problem").root

    def deployment(self, query_id: str) -> service.DeploymentView:
        """Give the deployment of a query."""
        return self._ask(service.DeploymentView, _query(query_id, "/deployment"))

    def undeploy(self, query_id: str) -> QueryView:
        """Give the query after retiring it and freeing its capacity."""
        return self._ask(QueryView, _query(query_id, "/deployment"), "DELETE")

    def request(self, query_id: str, body: service.RequestBody) -> service.RequestReply:
        """Give the answer of the deployed plan."""
        return self._ask(service.RequestReply, _query(query_id, "/requests"), "POST", body)

    def pipelines(self) -> service.PipelineList:
        """Give the registered pipelines."""
        return self._ask(service.PipelineList, "/v1/pipelines")

    def method(self) -> MethodView:
        """Give how the service plans, schedules and dispatches."""
        return self._ask(MethodView, "/v1/method")

    def infrastructure(self) -> service.InfrastructureView:
        """Give the infrastructure that the service plans for."""
        return self._ask(service.InfrastructureView, "/v1/infrastructure")

    def set_machines(self, machines: Mapping[str, int | None]) -> service.InfrastructureView:
        """Give the infrastructure after machines of tiers came or went; None: as stated."""
        body = _Document({"machines": dict(machines)})
        return self._ask(service.InfrastructureView, "/v1/infrastructure", "PATCH", body)

    def emulation(self) -> service.InfrastructureView:
        """Give the infrastructure with the links that are imitated."""
        return self._ask(service.InfrastructureView, "/v1/emulation")

    def set_emulation(self, body: service.EmulationBody) -> service.InfrastructureView:
        """Give the infrastructure with the links that are imitated from now on."""
        return self._ask(service.InfrastructureView, "/v1/emulation", "PATCH", body)

    def _ask(
        self,
        answer: type[Answer],
        path: str,
        method: str = "GET",
        body: BaseModel | None = None,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        # What the caller left out takes the defaults of the service.
        json = None if body is None else body.model_dump(mode="json", exclude_unset=True)
        sent = self._sent(path, method, json=json, params=params, headers=headers)
        return self._read(answer, sent)

    def _sent(
        self,
        path: str,
        method: str,
        *,
        json: object = None,
        content: bytes | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        try:
            response = self._http.request(
                method, path, json=json, content=content, params=params, headers=headers
            )
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise InvalidInput.of("url", f"must be a URL ({error})", self.base_url) from error
        except httpx.HTTPError as error:
            told = str(error) or type(error).__name__
            reason = f"no service answers at {self.base_url} ({told})"
            raise Unavailable(reason, retry_after_s=_RETRY_AFTER_S) from error
        if not response.is_success:
            raise _error(response)
        return response

    def _read(self, answer: type[Answer], response: httpx.Response) -> Answer:
        try:
            return answer.model_validate_json(response.content)
        except ValidationError as error:
            reason = f"{self.base_url} answers, but not as this version of Circinus expects"
            raise Unavailable(reason, retry_after_s=_RETRY_AFTER_S) from error


def _query(query_id: str, rest: str = "") -> str:
    return f"/v1/queries/{_part(query_id)}{rest}"


def _part(identifier: str) -> str:
    """Give an id as one part of a path: it cannot reach another route."""
    if not identifier or not identifier.isascii() or not set(identifier).isdisjoint("/:?#%. "):
        raise InvalidInput.of("id", "must be the id of a query or plan", identifier)
    return identifier


def _error(response: httpx.Response) -> CircinusError:
    try:
        problem = ProblemDetails.model_validate_json(response.content)
    except ValidationError:  # a proxy in between, or no service of ours
        detail = f"HTTP {response.status_code} {response.reason_phrase}"
        problem = ProblemDetails(title=detail, status=response.status_code, detail=detail)
    if problem.errors and response.status_code in _BROKEN_RULES:
        return InvalidInput(problem.errors)
    if response.status_code in {429, 503}:
        text = response.headers.get("Retry-After", "")
        after_s = float(text) if text.isdecimal() else _RETRY_AFTER_S
        return Unavailable(problem.detail, retry_after_s=after_s)
    return Refused(problem)
