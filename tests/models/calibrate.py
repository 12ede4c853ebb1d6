"""Rewrites `nestor/data/light_calibration.npz`: `python -m tests.models.calibrate`.

A deep network of random weights saturates or dies out. In a probing copy of each light model every batch norm and
every spatial convolution is followed by a normalisation over the picture; the statistics found there become the batch
norms' means and variances and the convolutions' scales and biases. Then the fully connected layers, in order, are
centred over a few pictures and scaled to unit variance (the last one to two, so that the answers differ).
"""

from __future__ import annotations

import copy
import math

import numpy as np
import onnx
from onnx import helper, numpy_helper

from nestor import models
from nestor.accuracy import onnxruntime_outputs

Calibration = dict[str, np.ndarray]


def main() -> None:
    archive: Calibration = {}
    for name in models.LIGHT_MODELS:
        found = calibrate(name)
        archive.update({f"{name}|{key}": value for key, value in found.items()})
        print(f"{name}: {len(found)} tensors", flush=True)
    np.savez_compressed(models.CALIBRATION, **archive)  # type: ignore[arg-type]


def calibrate(name: str) -> Calibration:
    """The calibration of one light model, in the form that `nestor.models.light_model` takes."""
    base = models.light_model(name, calibration={})
    conv_outputs = [node.output[0] for node in base.graph.node if node.op_type == "Conv"]
    spatial = {
        output: math.prod(value.shape[2:]) > 1 for output, value in _run(base, conv_outputs, models.image(0)).items()
    }
    calibration = _normalise_channels(base, spatial)
    layers = [
        node
        for node in base.graph.node
        if node.op_type == "Gemm" or (node.op_type == "Conv" and not spatial[node.output[0]])
    ]
    made = {tensor.name for tensor in base.graph.initializer}
    for node in layers:
        model = models.light_model(name, calibration=calibration)
        output = node.output[0]
        values = np.stack([_run(model, [output], models.image(seed))[output].ravel() for seed in range(6)])
        mean = values.mean(0)
        scale = (2.0 if node is layers[-1] else 1.0) / ((values - mean).std() + 1e-9)
        calibration["mul:" + node.input[1]] = np.float32(scale)
        if len(node.input) > 2 and node.input[2] in made:
            calibration["set:" + node.input[2]] = (-mean * scale).astype(np.float32)
    return calibration


def _normalise_channels(base: onnx.ModelProto, spatial: dict[str, bool]) -> Calibration:
    """Statistics of each batch norm's input and each spatial convolution's output, channel by channel."""
    made = {tensor.name for tensor in base.graph.initializer}
    normed = {node.input[0] for node in base.graph.node if node.op_type == "BatchNormalization"}
    model = copy.deepcopy(base)
    nodes, probes, renamed = [], [], {}
    for node in model.graph.node:
        inputs = list(node.input)
        node.input[:] = [renamed.get(tensor, tensor) for tensor in inputs]
        if node.op_type == "BatchNormalization":
            probes.append((node.input[0], "batch_norm", inputs))
            nodes.append(helper.make_node("InstanceNormalization", list(node.input[:3]), [node.output[0]]))
            continue
        nodes.append(node)
        output = node.output[0]
        if node.op_type == "Conv" and spatial[output] and output not in normed:
            channels = next(t.dims[0] for t in base.graph.initializer if t.name == inputs[1])
            one, zero, renamed[output] = output + "_one", output + "_zero", output + "_normalised"
            model.graph.initializer.append(numpy_helper.from_array(np.ones(channels, np.float32), one))
            model.graph.initializer.append(numpy_helper.from_array(np.zeros(channels, np.float32), zero))
            for extra in (one, zero):
                model.graph.input.append(helper.make_tensor_value_info(extra, onnx.TensorProto.FLOAT, [channels]))
            probes.append((output, "conv", inputs))
            nodes.append(helper.make_node("InstanceNormalization", [output, one, zero], [renamed[output]]))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    values = _run(model, sorted({probe[0] for probe in probes}), models.image(0))
    calibration: Calibration = {}
    for tensor, kind, inputs in probes:
        value = values[tensor].astype(np.float64)
        mean, variance = value.mean((0, 2, 3)), value.var((0, 2, 3)) + 1e-5
        if kind == "batch_norm":
            calibration["set:" + inputs[3]] = mean.astype(np.float32)
            calibration["set:" + inputs[4]] = variance.astype(np.float32)
            continue
        calibration["mul:" + inputs[1]] = (1 / np.sqrt(variance)).astype(np.float32)
        if len(inputs) > 2 and inputs[2] in made:
            calibration["set:" + inputs[2]] = (-mean / np.sqrt(variance)).astype(np.float32)
    return calibration


def _run(model: onnx.ModelProto, outputs: list[str], picture: np.ndarray) -> dict[str, np.ndarray]:
    [data] = models.data_inputs(model)
    return onnxruntime_outputs(model, {data: picture}, outputs)


if __name__ == "__main__":
    main()
