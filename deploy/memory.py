"""A limit on the memory of this process."""

from __future__ import annotations

import resource


def limit_memory(beyond_bytes: int) -> None:
    """Let this process take at most so much more address space than it has now."""
    with open("/proc/self/statm", encoding="ascii") as facts:
        held = int(facts.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + beyond_bytes, held + beyond_bytes))
