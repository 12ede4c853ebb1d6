"""The `opencl` target: OpenCL C 1.2 for any device, and for this machine's cores through PoCL."""
