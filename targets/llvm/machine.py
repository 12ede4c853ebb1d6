"""From a `Target` to the machine that it means: the host's facts filled in, the LLVM target machine made."""

from __future__ import annotations

import functools

from targets.llvm.runtime.host import Machine, host, host_machine, target_machine
from tensorir.errors import UserError
from tensorir.target import CPUS, KNOWN_FEATURES, Target

_GENERIC = ("x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64")


def resolve_host(target: Target) -> Target:
    """An `llvm` target with the CPU, cores and caches of this machine where it left them open."""
    if target.kind != "llvm" or target.mtriple:
        return target
    options = dict(target.options)
    here = host()
    if target.mcpu == "host":
        native = native_target()
        options["mcpu"] = native.mcpu
        attributes = [a for a in (native.mattr, target.mattr) if a]
        if attributes:
            options["mattr"] = ",".join(attributes)
        sizes = {"l1": here.l1_bytes, "l2": here.l2_bytes, "l3": here.l3_bytes}
        defaults = {"l1": native.l1_bytes, "l2": native.l2_bytes, "l3": native.l3_bytes}
        for name, size in sizes.items():
            if size and size != defaults[name]:
                options.setdefault(name, str(size))
    options.setdefault("cores", str(here.cores))
    return Target.make("llvm", options)


@functools.cache
def native_target() -> Target:
    """This machine's CPU: a known name, and how its features differ from that name's."""
    here = host()
    arch = "aarch64" if here.triple.split("-")[0] in ("aarch64", "arm64") else "x86_64"
    listed = {f[1:] for f in here.features.split(",")} & KNOWN_FEATURES
    present = {f[1:] for f in here.features.split(",") if f.startswith("+")} & KNOWN_FEATURES
    if here.cpu in CPUS and CPUS[here.cpu][0] == arch:
        cpu = here.cpu
    elif arch == "aarch64":
        cpu = "generic"
    else:
        cpu = next(name for name in _GENERIC if CPUS[name][1] - {"sse2"} <= present)
    table = CPUS[cpu][1]
    # A feature that the system does not list at all is taken as the table has it.
    changes = [f"+{f}" for f in sorted(present - table)] + [f"-{f}" for f in sorted((table & listed) - present)]
    return Target.make("llvm", {"mcpu": cpu, "mattr": ",".join(changes)} if changes else {"mcpu": cpu})


@functools.lru_cache(maxsize=64)
def machine_of(target: Target, opt: int = 2) -> Machine:
    """The LLVM target machine for a resolved target."""
    if target.mtriple:
        return target_machine(target.mtriple, target.option("mcpu"), target.mattr, opt)
    native = native_target()
    if target.mcpu == native.mcpu and target.features == native.features:
        return host_machine(opt)
    return target_machine(host().triple, target.mcpu, target.mattr, opt)


def require_runnable(target: Target) -> None:
    """Raises `UserError` if code for `target` cannot run on this machine."""
    here = native_target()
    if target.arch != here.arch:
        raise UserError(
            f"code for {target} cannot run here: this machine is {here.arch}, not {target.arch}",
            help="compile and save it, then load it on such a machine",
        )
    missing = sorted(target.features & KNOWN_FEATURES - here.features)
    if missing:
        raise UserError(
            f"code for {target} cannot run here: this CPU ({host().cpu}) has no {', '.join(missing)}",
            help="use the target llvm, which means the machine at hand",
        )
