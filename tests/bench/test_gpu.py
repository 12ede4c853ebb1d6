"""The script for a machine with a GPU works where there is none: on PoCL in dry form; it says that no GPU is here."""

from __future__ import annotations

import pytest

from tests.bench import cuda_resources, gpu

pytest.importorskip("pyopencl")


def test_every_check_runs_in_dry_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--dry", "--models"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n{name}\n" in text for name in gpu.CHECKS)
    assert "of a copy" in text and "TFLOP/s" in text and "all right" in text


def test_without_a_device_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from targets.cuda.compile import CudaError

    def nothing(target: object) -> None:
        raise CudaError("no CUDA device is here: none")

    monkeypatch.setattr(gpu, "open_driver", nothing)
    assert gpu.main([]) == 2
    assert "no CUDA device is here" in capsys.readouterr().out


def test_a_wrong_value_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    make = gpu.PROGRAMS["elementwise"]

    def wrong() -> object:
        program = make()
        program.wanted[0] = program.wanted[0] + 1
        return program

    monkeypatch.setitem(gpu.PROGRAMS, "elementwise", wrong)
    assert gpu.main(["--dry", "--only", "programs"]) == 1
    assert "elementwise" in capsys.readouterr().out


def test_the_table_of_resources_adds_up() -> None:
    from targets.cuda.compile import Resources

    row = cuda_resources.Row("m", "sm_80", {"a": Resources(32, 0, 0, 128, 0), "b": Resources(48, 4, 8, 64, 16)}, 1.0)
    assert str(row).split() == ["m", "sm_80", "2", "48", "12", "128", "16", "1.0"]
