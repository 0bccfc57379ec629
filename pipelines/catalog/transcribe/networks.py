"""The weights of `transcribe`."""

from __future__ import annotations

from circinus.pipelines.catalog.whisper import WHISPER
from circinus.pipelines.execution.weights import ModelWeights

MOONSHINE = ModelWeights(
    name="moonshine-base",
    what="Moonshine base, ONNX Runtime format",
    licence="MIT",
    size_bytes=65_350_741,
    files={
        "decoder.ort": "370e0c1f161d68dc1c2264c1a82024fb123380da3b73f47f05531d1e8d3308c3",
        "encoder.ort": "9d1a19e044cbf89a207723d1adb667de89a5671a1e3e611b8ebe721b2c31219c",
        "tokenizer.json": "b68b995a58b3373db6c4f46864a9db50cd1333d086150ffa2c1096581ede9c10",
    },
)
GTCRN = ModelWeights(
    name="gtcrn",
    what="GTCRN denoiser, ONNX",
    licence="MIT",
    size_bytes=535_190,
    files={"gtcrn.onnx": "b4718df6228e7bdf1a8a435cf98f838636eb2fd331acabf86ba87c5192ebcb87"},
)
DTLN = ModelWeights(
    name="dtln",
    what="DTLN denoiser, two ONNX graphs",
    licence="MIT",
    size_bytes=3_968_247,
    files={
        "model_1.onnx": "22b91cae3855e5a0620e66a917ca6c82c58db0e842c770f58d86751c5e8d4ae3",
        "model_2.onnx": "e20c92f9233fccf29cddf86970d0d0161a03aebccc26d6f4d5639c4d5ec2e639",
    },
)
WEIGHTS = (*WHISPER.values(), MOONSHINE, GTCRN, DTLN)
