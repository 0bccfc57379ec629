"""Networks in ONNX form, held between calls, on a GPU where the runtime offers one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from circinus.pipelines.execution.loaded import MODELS

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

_PROVIDERS = ("CUDAExecutionProvider", "CPUExecutionProvider")


def session(path: Path, *, size_bytes: float, threads: int = 1) -> InferenceSession:
    """Return the network of a file, loaded unless it is held; so many threads run it."""
    return MODELS.get(("onnx", str(path), threads), size_bytes, lambda: _loaded(path, threads))


def _loaded(path: Path, threads: int) -> InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    offered = onnxruntime.get_available_providers()
    providers = [name for name in _PROVIDERS if name in offered]
    return onnxruntime.InferenceSession(str(path), options, providers=providers)
