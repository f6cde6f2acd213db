"""Resource usage of a training (processor, memory, GPUs): sampled while it runs, summarised afterwards."""

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tagline.models.nn.devices import core_count
from tagline.runs.events import Event, UsageEvent

INTERVAL_S = 30.0
EVALUATION_INTERVAL_S = 5.0
"""The shortest interval: evaluations may follow each other faster than a sample is meaningful."""
NVIDIA_SMI_TIMEOUT_S = 5.0
NVIDIA_SMI_FIELDS = ("name", "utilization.gpu", "memory.used", "memory.total")
MIB, GB = 2**20, 1e9


class UsageSampler:
    """Samples the usage of this process; the processor share is that since the previous sample."""

    def __init__(self) -> None:
        self._cores = core_count()
        self._sampled_at, self._processor_s = time.monotonic(), _processor_seconds()

    def is_due(self, *, at_evaluation: bool = False) -> bool:
        """Return whether another sample is due."""
        return time.monotonic() - self._sampled_at >= (EVALUATION_INTERVAL_S if at_evaluation else INTERVAL_S)

    def take_sample(self) -> dict[str, Any]:
        """Return the current usage; values that the machine does not report are left out."""
        now, processor_s = time.monotonic(), _processor_seconds()
        elapsed = now - self._sampled_at
        sample: dict[str, Any] = {}
        if elapsed > 0:
            share = (processor_s - self._processor_s) / elapsed / self._cores
            sample["processor"] = round(min(1.0, max(0.0, share)), 3)
        self._sampled_at, self._processor_s = now, processor_s
        sample |= measure_memory()
        if gpus := query_gpus():
            sample["gpus"] = gpus
        return sample


def measure_memory(status: str | None = None) -> dict[str, int]:
    """Return this process's memory, its peak, and the machine's, in bytes, as far as the system reports them."""
    memory: dict[str, int] = {}
    lines = _read_text("/proc/self/status") if status is None else status
    keys = {"VmRSS": "memory_bytes", "VmHWM": "peak_memory_bytes"}
    for line in lines.splitlines():
        key, _, value = line.partition(":")
        if key in keys and value.split()[:1] and value.split()[0].isdecimal():
            memory[keys[key]] = 1024 * int(value.split()[0])
    if "peak_memory_bytes" not in memory:  # macOS has no /proc, and counts in bytes
        unit = 1 if sys.platform == "darwin" else 1024
        memory["peak_memory_bytes"] = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with suppress(ValueError, OSError, AttributeError):
        memory["machine_memory_bytes"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return memory


def query_gpus() -> list[dict[str, Any]]:
    """Return the usage of each NVIDIA GPU; empty if there is none, or its driver does not answer in time."""
    if not any(Path("/dev").glob("nvidia[0-9]*")) or not (program := shutil.which("nvidia-smi")):
        return []
    command = [program, f"--query-gpu={','.join(NVIDIA_SMI_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=NVIDIA_SMI_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_gpus(result.stdout) if result.returncode == 0 else []


def parse_gpus(text: str) -> list[dict[str, Any]]:
    """Parse the output of `nvidia-smi`, one GPU per line; unsupported values are left out."""
    gpus = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != len(NVIDIA_SMI_FIELDS):
            continue
        gpu: dict[str, Any] = {"name": parts[0]}
        if parts[1].isdecimal():
            gpu["share"] = int(parts[1]) / 100
        for key, value in (("memory_bytes", parts[2]), ("total_memory_bytes", parts[3])):
            if value.isdecimal():
                gpu[key] = MIB * int(value)
        gpus.append(gpu)
    return gpus


def summarize_usage(events: Iterable[Event]) -> dict[str, Any]:
    """Summarise the samples among a run's events: means and maxima; empty if there are none."""
    samples = [event for event in events if isinstance(event, UsageEvent)]
    if not samples:
        return {}
    summary: dict[str, Any] = {"samples": len(samples)}
    if shares := [sample.processor for sample in samples if sample.processor is not None]:
        summary["processor"] = {"mean": round(sum(shares) / len(shares), 3), "most": max(shares)}
    if peaks := [sample.peak_memory_bytes for sample in samples if sample.peak_memory_bytes is not None]:
        summary["memory"] = {"most_bytes": max(peaks), "of_bytes": samples[-1].machine_memory_bytes}
    gpus = []
    for number, last in enumerate(samples[-1].gpus):
        of_this = [sample.gpus[number] for sample in samples if len(sample.gpus) > number]
        busy = [gpu.share for gpu in of_this if gpu.share is not None]
        memory = [gpu.memory_bytes for gpu in of_this if gpu.memory_bytes is not None]
        gpus.append(
            {
                "name": last.name,
                "mean": round(sum(busy) / len(busy), 3) if busy else None,
                "most": max(busy, default=None),
                "most_bytes": max(memory, default=None),
                "of_bytes": last.total_memory_bytes,
            }
        )
    return summary | ({"gpus": gpus} if gpus else {})


def describe_summary(summary: Mapping[str, Any]) -> str:
    """Format a summary as a sentence; empty if there is none."""
    parts = []
    if processor := summary.get("processor"):
        parts.append(f"processor {processor['mean']:.0%} on average, {processor['most']:.0%} at most")
    if memory := summary.get("memory"):
        parts.append(f"memory {_format_amount(memory['most_bytes'], memory['of_bytes'])} at most")
    for gpu in summary.get("gpus", ()):
        busy = f" {gpu['mean']:.0%} on average" if gpu["mean"] is not None else ""
        used = (
            f", {_format_amount(gpu['most_bytes'], gpu['of_bytes'])} at most" if gpu["most_bytes"] is not None else ""
        )
        parts.append(f"GPU {gpu['name']}{busy}{used}")
    return "; ".join(parts)


def describe_sample(sample: UsageEvent) -> str:
    """Format one sample for a log."""
    parts = [f"processor {sample.processor:.0%}"] if sample.processor is not None else []
    if sample.memory_bytes is not None:
        parts.append(f"memory {_format_amount(sample.memory_bytes, sample.machine_memory_bytes)}")
    for gpu in sample.gpus:
        busy = f" {gpu.share:.0%}" if gpu.share is not None else ""
        used = f", {_format_amount(gpu.memory_bytes, gpu.total_memory_bytes)}" if gpu.memory_bytes is not None else ""
        parts.append(f"GPU{busy}{used}")
    return "; ".join(parts)


def _format_amount(used: int, of: int | None) -> str:
    return f"{used / GB:.1f} of {of / GB:.1f} GB" if of else f"{used / GB:.1f} GB"


def _processor_seconds() -> float:
    """Return the processor time of all threads of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text("ascii", "replace")
    except OSError:
        return ""
