"""The weights of `transcribe`."""

from __future__ import annotations

from circinus.pipelines.execution.weights import ModelWeights

WHISPER_TINY = ModelWeights(
    name="whisper-tiny.en",
    what="Whisper tiny.en for CTranslate2",
    licence="MIT",
    size_bytes=78_090_614,
    files={
        "config.json": "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
        "model.bin": "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
        "tokenizer.json": "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
        "vocabulary.txt": "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
    },
    hub="Systran/faster-whisper-tiny.en",
)
WHISPER_BASE = ModelWeights(
    name="whisper-base",
    what="Whisper base for CTranslate2",
    licence="MIT",
    size_bytes=150_218_479,
    files={
        "config.json": "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
        "model.bin": "905e5bf8336bcc625ba4e33498d675a4b935504118c594d868c36e91a60c1a57",
        "tokenizer.json": "7e146198186d5e3b9ce7d9d7f131b69b44569eaed9ad64a5516629a6c6a865c4",
        "vocabulary.json": "22f3cb2fc2be1545b9a7db8e993ddd59aeccadfbc7d7b00ca517ca8960864766",
    },
)
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
WEIGHTS = (WHISPER_TINY, WHISPER_BASE, MOONSHINE, GTCRN, DTLN)
