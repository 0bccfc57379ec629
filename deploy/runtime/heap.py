"""Keeps the garbage collector from holding up requests.

A full collection looks at everything that was ever imported: 50 to 110 ms in which no request is
handed out and no answer is taken, again and again where many requests come. A body of a thousand
violations is enough for one.
"""

from __future__ import annotations

import gc


def freeze_heap() -> None:
    """Exempt all objects of now from later collections; call it when all is loaded."""
    gc.collect()  # what is garbage already would stay for good
    gc.freeze()
