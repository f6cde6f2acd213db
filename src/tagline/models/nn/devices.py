"""The device and precision that torch computes with, chosen by pure functions from facts about the machine."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

Kind = Literal["cuda", "mps", "cpu"]
Precision = Literal["float32", "bfloat16", "float16"]
TILE_LEAF = 0x1D
"""The CPUID leaf that describes the tiles of a processor's matrix unit (AMX)."""


def computing_limit(cpuinfo: str) -> str | None:
    """Return the instruction set that oneDNN, torch's CPU backend, must be limited to; `cpuinfo` is /proc/cpuinfo.

    Some virtual machines advertise AMX tiles and hide their description. oneDNN then assumes tiles without rows, and
    the process dies of an illegal instruction at its first bfloat16 product.
    """
    facts = {key.strip(): value for key, _, value in (line.partition(":") for line in cpuinfo.splitlines())}
    level = facts.get("cpuid level", "").strip()
    hides_tiles = "amx_tile" in facts.get("flags", "").split() and level.isdecimal() and int(level) < TILE_LEAF
    return "AVX512_CORE_FP16" if hides_tiles else None


def _first_processor() -> str:
    try:
        with Path("/proc/cpuinfo").open() as file:
            return "".join(takewhile(str.strip, file))  # the first of many equal entries
    except OSError:  # macOS has no such file
        return ""


LIMIT = computing_limit(_first_processor())
if LIMIT:
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", LIMIT)  # read when torch first computes


@dataclass(frozen=True)
class Device:
    """A device that torch can use."""

    kind: Kind
    name: str
    number: int = 0
    has_bfloat16: bool = False
    """In hardware: emulated bfloat16 is slower than float32."""

    @property
    def address(self) -> str:
        """The name that `torch.device` accepts."""
        return f"{self.kind}:{self.number}" if self.kind == "cuda" else self.kind


def choose_device(available: list[Device], *, local_rank: int = 0) -> Device:
    """Return the device of one worker: of the best kind present, the one at the worker's local rank."""
    for kind in ("cuda", "mps", "cpu"):
        if same := [device for device in available if device.kind == kind]:
            return same[local_rank % len(same)]
    raise ValueError("a machine without a CPU")


def precision_of(setting: Literal["auto", "float32", "bfloat16", "float16"], device: Device) -> Precision:
    """Return the precision: `auto` is bfloat16 where the device has it, float16 on older GPUs, else float32."""
    if setting != "auto":
        return setting
    if device.has_bfloat16:
        return "bfloat16"
    return "float16" if device.kind == "cuda" else "float32"


@contextmanager
def use_deterministic(device: Device) -> Iterator[None]:
    """Make computation on a GPU bit-exact from run to run; on a CPU it already is."""
    import torch

    if device.kind != "cuda":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # required by cuBLAS to be deterministic
    before = torch.are_deterministic_algorithms_enabled()
    # With warn_only, attention would only warn and use a backward pass that differs from run to run.
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def core_count() -> int:
    """Return the number of cores this process may use: its CPU affinity, where known, within the container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(int(min(cores, cpu_quota())), 1)


def cpu_quota(system: Path = Path("/")) -> float:
    """Return the CPU quota of this process's cgroups on Linux, in cores; infinite where none is set."""
    quotas = [math.inf]
    for line in _read_lines(system / "proc/self/cgroup"):
        _, controllers, name = line.split(":", 2)
        is_unified = controllers == ""
        if not is_unified and "cpu" not in controllers.split(","):
            continue
        top = system / "sys/fs/cgroup" / controllers
        group = top / name.strip("/")
        # Inside a container the name is often the host's, and only the topmost directory exists.
        for directory in (group, *group.parents):
            if is_unified:
                granted = " ".join(_read_lines(directory / "cpu.max")).split()
            else:
                granted = [*_read_lines(directory / "cpu.cfs_quota_us"), *_read_lines(directory / "cpu.cfs_period_us")]
            if len(granted) == 2 and granted[0].isdecimal() and int(granted[1]) > 0:
                quotas.append(int(granted[0]) / int(granted[1]))
            if directory == top:
                break
    return min(quotas)


def _read_lines(path: Path) -> list[str]:
    """Return the lines of a system file; an empty list if it does not exist."""
    try:
        return path.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return []


def gpu_count() -> int:
    """Return the number of GPUs that torch can use; torch is imported only where there is a driver."""
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        return 0
    return sum(device.kind == "cuda" for device in find_devices())


def find_devices() -> list[Device]:
    """Return every device of this machine that torch can use."""
    import torch

    devices = []
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        major, _ = torch.cuda.get_device_capability(number)
        devices.append(Device("cuda", torch.cuda.get_device_name(number), number, has_bfloat16=major >= 8))
    if torch.backends.mps.is_available():
        devices.append(Device("mps", "Apple GPU"))
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # missing in older versions
    # On a processor made for tiles, bfloat16 without them runs at half the speed of float32.
    has_bfloat16 = not LIMIT and any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"))
    return [*devices, Device("cpu", str(capabilities.get("cpu_name", "CPU")), has_bfloat16=has_bfloat16)]
