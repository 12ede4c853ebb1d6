"""The front door: compile, build, load, run and check; it wires the packages below and holds no compiler logic."""
