"""Payloads that several configurations share, kept from being changed.

An operator that writes into what it was given would change what other configurations see. The
one rule: arrays are read-only, so writing into them fails loudly; lists and dicts, which cannot
be, are handed out as copies.
"""

from __future__ import annotations

import numpy as np

from pipelines.payload import Payload


def freeze(payload: Payload) -> None:
    """Make every array in the payload read-only, in place.

    In place, so that an operator that hands out a buffer of its own fails on its next call
    instead of changing what was cached.
    """
    if isinstance(payload, np.ndarray):
        payload.flags.writeable = False
    elif isinstance(payload, list):
        for item in payload:
            freeze(item)
    elif isinstance(payload, dict):
        for item in payload.values():
            freeze(item)


def handed_out(payload: Payload) -> Payload:
    """Give the payload with lists and dicts copied and arrays as read-only views, not copied."""
    if isinstance(payload, np.ndarray):
        return _read_only(payload)
    if isinstance(payload, list):
        return [handed_out(item) for item in payload]
    if isinstance(payload, dict):
        return {key: handed_out(item) for key, item in payload.items()}
    return payload


def _read_only(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Payload:
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view
