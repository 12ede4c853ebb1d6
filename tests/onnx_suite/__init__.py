"""The ONNX backend suite against a function `run(model_path, inputs)`: `python -m tests.onnx_suite --help`."""
