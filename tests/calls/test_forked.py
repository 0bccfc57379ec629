"""Workers that are copies of the process that plans get the answers to their own questions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from circinus.deploy.profiling.calls import CallingSide
from circinus.deploy.profiling.pool import ProfilingPoolSettings
from circinus.deploy.profiling.processes import ForkedPool
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.execution.calling import OpenGate
from circinus.pipelines.langchain import Reading, as_one, pipeline_from_runnable
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import CallPrice, Endpoint
from circinus.profiler.execution import Completed
from tests.calls.server import Model, serving_models

WORKERS, ASKED = 3, 45


def test_copies_of_a_process_that_has_a_connection_do_not_share_it() -> None:
    with serving_models({"m": Model(price=CallPrice(), median_s=0.02, spread=0.5)}) as server:
        model = ChatOpenAI(
            model="m", base_url=server.url, api_key=SecretStr("none"), temperature=0.0
        )
        assert model.invoke(_question(0)).text == "x0"  # leaves a connection open
        chain = as_one(model | (lambda message: message.text), "asks")
        pipeline = pipeline_from_runnable(chain, Reading(name="asks", score=lambda o, e: 1.0))
        side = CallingSide.of((Endpoint(name="m"),), OpenGate())
        how = ProfilingPoolSettings(workers=WORKERS)
        (operator,) = pipeline.operators

        def asked(number: int) -> object:
            done = pool.run(operator, _question(number), Configuration(()))
            return done.output if isinstance(done, Completed) else done.cause

        pool = ForkedPool(pipeline, SystemClock(), how, calling=side)
        with pool, ThreadPoolExecutor(WORKERS) as threads:
            answers = list(threads.map(asked, range(ASKED)))

        assert answers == [f"x{number}" for number in range(ASKED)]
        assert model.invoke(_question(1)).text == "x1"  # the parent's own is as it was


def _question(number: int) -> str:
    return f"The price of tin is x{number}. What is the price of tin?"
