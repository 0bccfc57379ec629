"""Result of checking one need of an installation, of a cluster or of a machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """Result of checking one need, in words."""

    name: str
    state: State  # `fail`: something needed is missing
    detail: str
    remedy: str = ""  # what to do; empty: nothing, or the detail has it
