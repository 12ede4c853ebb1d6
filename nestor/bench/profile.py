"""Where the time of a model goes: for each kernel its time, work and floor, and what its code looks like."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphir.groups import kernel_nodes
from graphir.plan import Launch
from graphir.stored import vector_bits_of
from nestor.bench.probe import MachineFloor
from nestor.bench.work import Work, node_work, traffic

if TYPE_CHECKING:
    from graphir.executor import Executable


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """One launch: seconds, operations of products (None where they are not known), bytes read and written, the floor in
    seconds, and facts of the code."""

    node: str
    ops: str
    seconds: float
    flop: int | None
    nbytes: int
    floor: float
    spills: int
    vector_bits: int
    implementation: str

    @property
    def share(self) -> float:
        """The floor's share of the time: 1 is as fast as this machine can."""
        return self.floor / self.seconds if self.seconds else 1.0

    @property
    def intensity(self) -> float:
        """Operations for each byte."""
        return (self.flop or 0) / self.nbytes if self.nbytes else 0.0


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The kernels in the order they ran, and the shortest time of a whole run (through the native entry)."""

    kernels: tuple[KernelProfile, ...]
    run_seconds: float
    machine: MachineFloor

    @property
    def kernel_seconds(self) -> float:
        """All kernels together."""
        return sum(k.seconds for k in self.kernels)

    @property
    def floor(self) -> float:
        """The floors of all kernels together."""
        return sum(k.floor for k in self.kernels)

    def json(self) -> dict[str, Any]:
        """The profile as data."""
        kernels = [{**asdict(k), "share": k.share} for k in self.kernels]
        return {"run_seconds": self.run_seconds, "machine": asdict(self.machine), "kernels": kernels}


def profile_model(
    exe: Executable, inputs: Mapping[str, np.ndarray], machine: MachineFloor, *, repeats: int = 20
) -> ModelProfile:
    """Profiles a compiled model. One that was loaded from an artifact does not say what its products are."""
    arrays = [inputs[i.name] for i in exe.inputs]
    symbols = {s.symbol.name: arrays[s.input].shape[s.axis] for s in exe.plan.symbols}
    whole = _best_run(exe, arrays, repeats)
    found = exe.profile(arrays, repeats)
    launches = {i.node.name: i for i in exe.plan.walk() if isinstance(i, Launch)}
    described = {n.name: n for n, _ in kernel_nodes(exe.graph, views=True)} if exe.has_graph else {}
    kernels: list[KernelProfile] = []
    for one in found.times:
        launch = launches[one.node]
        known = described.get(one.node)
        work = Work(0, traffic(launch.node, symbols)) if known is None else node_work(known, symbols)
        group = exe.plan.kernels[launch.kernel].group
        native = hasattr(group.kernel, "object")
        kernels.append(
            KernelProfile(
                one.node,
                one.ops,
                one.seconds,
                None if known is None else work.flop,
                work.nbytes,
                machine.seconds(work.flop, work.nbytes),
                group.kernel.spills if native else 0,
                vector_bits_of(group.kernel) if native else 0,
                group.implementation,
            )
        )
    return ModelProfile(tuple(kernels), whole, machine)


def _best_run(exe: Executable, arrays: list[np.ndarray], repeats: int) -> float:
    times = []
    for _ in range(max(repeats, 3)):
        start = time.perf_counter()
        exe.run(arrays)
        times.append(time.perf_counter() - start)
    return min(times)


# --------------------------------------------------------------------------------------------------- the roofline


def roofline_svg(profile: ModelProfile, title: str, *, width: int = 760, height: int = 480) -> str:
    """A picture: operations a second over operations a byte, both logarithmic; the roof of the machine; a circle for
    each kernel with products, its area the kernel's share of the time."""
    points = [k for k in profile.kernels if k.flop and k.seconds > 0]
    peak, copy = profile.machine.fma, profile.machine.copy["DRAM"]
    left, right = -2.0, 4.0
    top = math.ceil(math.log10(peak) + 0.3)
    bottom = min([top - 3, *(math.floor(math.log10((k.flop or 1) / k.seconds)) for k in points)])
    margin = 60

    def x(value: float) -> float:
        return margin + (math.log10(value) - left) / (right - left) * (width - 2 * margin)

    def y(value: float) -> float:
        return height - margin - (math.log10(value) - bottom) / (top - bottom) * (height - 2 * margin)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
        ' font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{margin}" y="28" font-size="16">{_escape(title)}</text>',
    ]
    for power in range(int(left), int(right) + 1):
        at = x(10.0**power)
        parts.append(f'<path d="M{at:.1f} {margin}V{height - margin}" stroke="#ddd"/>')
        parts.append(f'<text x="{at:.1f}" y="{height - margin + 18}" text-anchor="middle">{_power(power)}</text>')
    for power in range(bottom, top + 1):
        at = y(10.0**power)
        parts.append(f'<path d="M{margin} {at:.1f}H{width - margin}" stroke="#ddd"/>')
        parts.append(f'<text x="{margin - 6}" y="{at + 4:.1f}" text-anchor="end">{_power(power - 9)}</text>')
    ridge = peak / copy
    parts.append(
        f'<path d="M{x(10**left):.1f} {y(max(copy * 10**left, 10.0**bottom)):.1f}L{x(ridge):.1f} {y(peak):.1f}'
        f'H{width - margin}" fill="none" stroke="#b00" stroke-width="2"/>'
    )
    total = profile.kernel_seconds or 1.0
    for k in points:
        radius = 3 + 30 * math.sqrt(k.seconds / total)
        rate, per_byte = (k.flop or 1) / k.seconds, max(k.intensity, 10**left)
        text = f"{k.node} ({k.ops}): {k.seconds * 1e6:.1f} us, {rate / 1e9:.1f} GFLOP/s, {k.share:.0%} of the floor"
        parts.append(
            f'<circle cx="{x(per_byte):.1f}" cy="{y(rate):.1f}" r="{radius:.1f}" fill="#06c" fill-opacity="0.4">'
            f"<title>{_escape(text)}</title></circle>"
        )
    parts.append(f'<text x="{width / 2}" y="{height - 14}" text-anchor="middle">operations a byte</text>')
    parts.append(
        f'<text x="{margin}" y="48">GFLOP/s; the roof: {peak / 1e9:.0f}, and {copy / 1e9:.0f} GB/s copied</text>'
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _power(power: int) -> str:
    return f"{10.0**power:g}"


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
