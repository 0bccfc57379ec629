"""A process of its own that calls a server within limits which others share, until it is ended.

    python -m tests.calls.calling_process DATABASE ADDRESS WINDOW_S SEED

The address is HOST:PORT of a server that reads a line `TOKENS SECONDS` and answers after so long,
or http://... of one that speaks the OpenAI interface and has a model `gpt`.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

import httpx
import numpy as np

from circinus.api.store.calls import StoreLeases
from circinus.api.store.engine import connect
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.model.endpoints import RateLimits, Usage
from circinus.profiler.leases import LeaseTimes
from circinus.profiler.rate_gate import RateAdmission, RateGate

REQUESTS, TOKENS, AT_ONCE = 60, 1_500, 5
LIMITS = RateLimits(requests_per_minute=REQUESTS, tokens_per_minute=TOKENS, concurrent=AT_ONCE)
THREADS = 3
MOST_TOKENS = 100


def call(gate: RateGate, address: str, rng: np.random.Generator) -> None:
    """Make one call that uses less than it might."""
    tokens = int(rng.integers(1, 40))
    leave = gate.admit("reader", {"gpt": Usage(calls=1.0, input_tokens=MOST_TOKENS)})
    if address.startswith("http"):
        tokens = chat(address, tokens)
    else:
        host, port = address.split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(f"{tokens} {rng.uniform(0.0, 0.03)}\n".encode())
            connection.recv(1)
    gate.settle(leave, {"gpt": Usage(calls=1.0, input_tokens=tokens)})


def chat(url: str, words: int) -> int:
    """Return the tokens that it read and wrote; one refusal ends the process."""
    message = {"role": "user", "content": "word " * words}
    asked = {"model": "gpt", "messages": [message], "temperature": 1}
    answer = httpx.post(f"{url}/chat/completions", json=asked, timeout=60)
    answer.raise_for_status()
    return int(answer.json()["usage"]["total_tokens"])


def main(url: str, address: str, window_s: str, seed: str) -> None:
    """Call on and on."""
    leases = StoreLeases(connect(url), times=LeaseTimes(window_s=float(window_s)))
    admission = RateAdmission({"gpt": LIMITS}, leases, SystemClock(), f"process-{os.getpid()}")

    def call_on(rng: np.random.Generator) -> None:
        while True:
            call(gate, address, rng)

    with RateGate(admission) as gate:
        spawned = np.random.default_rng(int(seed)).spawn(THREADS)
        threads = [threading.Thread(target=call_on, args=(rng,)) for rng in spawned]
        for each in threads:
            each.start()
        for each in threads:
            each.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
