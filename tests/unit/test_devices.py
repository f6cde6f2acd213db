"""Which device and which precision, from facts about the machine."""

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tagline.models import nn
from tagline.models.nn import devices
from tagline.models.nn.devices import Device

CPU = Device("cpu", "CPU")
SUPPORT = Path(__file__).parents[2] / "examples" / "support"
IMPORTED = """
import importlib, os, sys

class Torch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print(os.environ.get("GOMP_SPINCOUNT"))
            raise ImportError("as far as it is asked")

sys.meta_path.insert(0, Torch())
for name in sys.argv[1:]:
    os.environ.pop("GOMP_SPINCOUNT", None)
    for imported in [each for each in sys.modules if each.partition(".")[0] == "tagline"]:
        del sys.modules[imported]
    try:
        importlib.import_module(name)
    except ImportError:
        pass
"""
"""How threads are to wait when each module imports torch."""
LEARNED = """
import sys
from itertools import islice
from tagline.data import dataset
from tagline.models.encoder import Encoder, EncoderOptions
from tagline.spec import Data, Training
data = dataset.load(Data(train=sys.argv[1], text="message", labels="topic"))
options, training = EncoderOptions(pretrained=sys.argv[2], max_tokens=48), Training(epochs=1)
model = Encoder.create(options, training=training, task=data.task, labels=data.labels, pair=False)
steps = list(islice(model.fit(data.splits["train"], data.select(), seed=1), 2))
import torch
print(torch.get_num_threads(), *[step.loss.hex() for step in steps])
"""
"""The loss of two steps, to the last bit."""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let torch see a machine with these GPUs, given by name and compute capability, and this CPU."""

    def pretend(*gpus: tuple[str, tuple[int, int]], mps: bool = False, **cpu: Any) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(gpus))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: gpus[number][0])
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda number: gpus[number][1])
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: cpu)
        monkeypatch.setattr(devices, "LIMIT", None)

    return pretend


@pytest.mark.parametrize(
    ("gpu", "capability", "precision"),
    [
        ("Tesla P100", (6, 0), "float16"),
        ("Tesla V100", (7, 0), "float16"),
        ("Tesla T4", (7, 5), "float16"),
        ("NVIDIA A100", (8, 0), "bfloat16"),
        ("NVIDIA L4", (8, 9), "bfloat16"),
        ("NVIDIA H100", (9, 0), "bfloat16"),
        ("NVIDIA B200", (10, 0), "bfloat16"),
    ],
)
def test_a_gpu_computes_in_what_it_has_in_hardware(
    machine: Any, gpu: str, capability: tuple[int, int], precision: str
) -> None:
    machine((gpu, capability), avx512_bf16=True)
    chosen = devices.choose_device(devices.find_devices())
    assert (chosen.kind, chosen.name, chosen.address) == ("cuda", gpu, "cuda:0")
    assert devices.precision_of("auto", chosen) == precision


@pytest.mark.parametrize(
    ("capabilities", "precision"),
    [
        ({}, "float32"),
        ({"avx2": True, "avx512_f": True, "avx512_vnni": True}, "float32"),
        ({"avx512_bf16": False, "amx_bf16": False}, "float32"),
        ({"avx512_bf16": True}, "bfloat16"),
        ({"amx_bf16": True}, "bfloat16"),
        ({"architecture": "aarch64", "bf16": True}, "bfloat16"),
        ({"architecture": "aarch64", "sve_bf16": True}, "bfloat16"),
        ({"avx512_fp16": True, "amx_fp16": True}, "float32"),
    ],
)
def test_a_cpu_computes_in_bfloat16_only_where_it_has_it(
    machine: Any, capabilities: dict[str, Any], precision: str
) -> None:
    machine(**capabilities)
    chosen = devices.choose_device(devices.find_devices())
    assert chosen.address == "cpu"
    assert devices.precision_of("auto", chosen) == precision


def test_an_apple_gpu_is_taken_before_the_cpu_and_computes_in_float32(machine: Any) -> None:
    machine(mps=True)
    chosen = devices.choose_device(devices.find_devices())
    assert chosen.address == "mps"
    assert devices.precision_of("auto", chosen) == "float32"


@pytest.mark.parametrize("setting", ["float32", "bfloat16", "float16"])
def test_what_the_spec_says_counts_on_any_device(setting: Any) -> None:
    for device in (CPU, Device("cuda", "Tesla T4"), Device("cuda", "NVIDIA A100", has_bfloat16=True)):
        assert devices.precision_of(setting, device) == setting


def test_each_worker_of_a_machine_has_a_gpu_of_its_own(machine: Any) -> None:
    machine(*[("NVIDIA L4", (8, 9))] * 2)
    addresses = [devices.choose_device(devices.find_devices(), local_rank=rank).address for rank in range(3)]
    assert addresses == ["cuda:0", "cuda:1", "cuda:0"]


def test_workers_without_a_gpu_share_the_cpu() -> None:
    assert {devices.choose_device([CPU], local_rank=rank) for rank in range(4)} == {CPU}


def test_this_machine_has_a_device() -> None:
    assert devices.find_devices()[-1].kind == "cpu"


@pytest.mark.parametrize(
    ("cpuinfo", "limit"),
    [
        (
            "processor\t: 0\ncpuid level\t: 28\nflags\t\t: fpu avx512_bf16 amx_bf16 amx_tile amx_int8\n",
            "AVX512_CORE_FP16",
        ),
        ("processor\t: 0\ncpuid level\t: 32\nflags\t\t: fpu avx512_bf16 amx_bf16 amx_tile amx_int8\n", None),
        ("processor\t: 0\ncpuid level\t: 13\nflags\t\t: fpu avx2\n", None),
        ("processor\t: 0\nFeatures\t: fp asimd bf16\n", None),
        ("", None),
    ],
)
def test_tiles_that_a_machine_promises_and_does_not_describe_are_left_alone(cpuinfo: str, limit: str | None) -> None:
    assert devices.computing_limit(cpuinfo) == limit


def test_without_its_tiles_such_a_processor_computes_in_float32(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(amx_bf16=True, avx512_bf16=True)
    monkeypatch.setattr(devices, "LIMIT", "AVX512_CORE_FP16")
    assert devices.precision_of("auto", devices.choose_device(devices.find_devices())) == "float32"


def test_a_product_in_bfloat16_does_not_end_the_process() -> None:
    ones = torch.ones(64, 64, dtype=torch.bfloat16)
    assert float((ones @ ones).float().sum()) == 64**3


def test_cores_are_counted_where_the_system_does_not_bind_processes_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has no such call."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 10)
    monkeypatch.setattr(devices, "cpu_quota", lambda: math.inf)
    assert devices.core_count() == 10


@pytest.mark.parametrize(("quota", "cores"), [(math.inf, 8), (16.0, 8), (2.0, 2), (1.5, 1), (0.25, 1)])
def test_cores_are_those_of_the_container(quota: float, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(devices, "cpu_quota", lambda: quota)
    assert devices.core_count() == cores


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, math.inf),
        ({"proc/self/cgroup": "0::/"}, math.inf),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, math.inf),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
        ({"proc/self/cgroup": "0::/host/name", "sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
        (
            {
                "proc/self/cgroup": "0::/outer/inner",
                "sys/fs/cgroup/outer/cpu.max": "200000 100000",
                "sys/fs/cgroup/outer/inner/cpu.max": "800000 100000",
            },
            2.0,
        ),
        (
            {
                "proc/self/cgroup": "2:memory:/a\n3:cpu,cpuacct:/a",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            math.inf,
        ),
    ],
)
def test_a_control_group_s_quota_is_read(files: dict[str, str], quota: float, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert devices.cpu_quota(tmp_path) == quota


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        ({}, {"GOMP_SPINCOUNT": nn.SPIN_COUNT}),
        ({"OMP_NUM_THREADS": "2"}, {"GOMP_SPINCOUNT": nn.SPIN_COUNT}),
        ({"GOMP_SPINCOUNT": "5"}, {}),
        ({"OMP_WAIT_POLICY": "active"}, {}),
    ],
)
def test_threads_soon_sleep_while_they_wait_unless_somebody_has_set_it(
    environment: dict[str, str], settings: dict[str, str]
) -> None:
    assert nn.choose_wait_settings(environment) == settings


def test_how_threads_wait_is_set_before_anything_imports_torch() -> None:
    """libgomp reads it once, when it is loaded."""
    source = Path(devices.__file__).parents[2]
    modules = [
        ".".join(("tagline", *path.relative_to(source).with_suffix("").parts)).removesuffix(".__init__")
        for path in sorted(source.rglob("*.py"))
        if "\nimport torch\n" in path.read_text("utf-8")
    ]
    assert "tagline.models.nn.loop" in modules
    done = subprocess.run([sys.executable, "-c", IMPORTED, *modules], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [nn.SPIN_COUNT] * len(modules)


@pytest.mark.skipif(sys.platform != "linux", reason="torch brings libgomp on Linux alone")
def test_how_threads_wait_is_in_effect_and_changes_no_bit(checkpoint: Callable[[str], Path]) -> None:
    def learn(**settings: str) -> subprocess.CompletedProcess[str]:
        unset = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
        return subprocess.run(
            [sys.executable, "-c", LEARNED, str(SUPPORT / "messages.csv"), str(checkpoint("bert"))],
            env=unset | {"OMP_NUM_THREADS": "2", "OMP_DISPLAY_ENV": "verbose"} | settings,
            capture_output=True,
            text=True,
            check=True,
        )

    ours, spinning = learn(), learn(GOMP_SPINCOUNT="10000")
    assert f"GOMP_SPINCOUNT = '{nn.SPIN_COUNT}'" in ours.stderr
    assert "GOMP_SPINCOUNT = '10000'" in spinning.stderr
    assert ours.stdout.startswith("2 ")
    assert ours.stdout == spinning.stdout
