"""The `cuda` target: CUDA C, compiled to cubins by nvcc or NVRTC, run through the driver interface."""
