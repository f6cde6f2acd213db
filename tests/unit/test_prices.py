"""What a job would cost."""

import pytest

from tagline import spec as specs
from tagline.gcp import machines
from tagline.jobs import prices
from tagline.jobs.prices import Rate
from tagline.spec import Spec


def job(pretrained: str = "bert-base-uncased", **vertex: object) -> Spec:
    raw = {
        "data": {"train": "a.csv", "text": "t", "labels": "l"},
        "vertex": vertex,
        "model": {"family": "encoder", "pretrained": pretrained},
    }
    return specs.parse(raw, where="a test")


@pytest.mark.parametrize(("machine", "accelerator", "count", "price"), [
    ("n1-standard-4", "", 0, 0.2185), ("n1-standard-8", "", 0, 0.437), ("n1-standard-16", "", 0, 0.874),
    ("e2-standard-4", "", 0, 0.154), ("g2-standard-4", "NVIDIA_L4", 1, 0.813), ("g2-standard-8", "NVIDIA_L4", 1, 0.982),
    ("g2-standard-12", "NVIDIA_L4", 1, 1.151), ("a2-highgpu-1g", "NVIDIA_TESLA_A100", 1, 4.224),
    ("a2-ultragpu-2g", "NVIDIA_A100_80GB", 2, 11.564), ("n1-standard-8", "NVIDIA_TESLA_T4", 2, 0.437 + 0.805),
])  # fmt: skip
def test_published_and_derived_prices(machine: str, accelerator: str, count: int, price: float) -> None:
    assert machines.hourly_price(machine, accelerator, count) == pytest.approx(price, abs=0.001)


def test_what_the_table_does_not_hold_has_no_price() -> None:
    assert machines.hourly_price("c3-highcpu-8", "", 0) is None
    assert machines.hourly_price("n1-standard-8", "NVIDIA_TESLA_P4", 1) is None
    price = prices.estimate_price(job(machine="c3-highcpu-8", accelerators=0, budget=5.0), training_rows=100)
    assert price.most is None
    assert price.expected is None
    assert "not known here" in price.sentence()
    assert "not known here" in prices.check_budget(
        job(machine="c3-highcpu-8", accelerators=0, budget=5.0).vertex, price
    )


def test_spot_machines_are_cheaper() -> None:
    whole = machines.hourly_price("n1-standard-4", "NVIDIA_TESLA_T4", 1)
    spot = machines.hourly_price("n1-standard-4", "NVIDIA_TESLA_T4", 1, spot=True)
    assert whole is not None
    assert spot is not None
    assert 0.3 * whole < spot < 0.6 * whole


@pytest.mark.parametrize(("machine", "accelerator", "price"), [
    ("n1-standard-8", "NVIDIA_TESLA_T4", 1.15 * (2 * 0.089 + 0.1905)),
    ("g2-standard-8", "NVIDIA_L4", 8 * 0.04225 + 1.15 * 0.336),
    ("a2-highgpu-1g", "NVIDIA_TESLA_A100", 4.224 - 3.374 + 1.15 * 1.694),
    ("n1-highmem-8", "NVIDIA_TESLA_T4", 0.5442 + 1.15 * 0.1905),
])  # fmt: skip
def test_spot_prices_of_more_than_one_accelerator(machine: str, accelerator: str, price: float) -> None:
    found = prices.estimate_price(job(machine=machine, accelerator=accelerator, spot=True))
    assert found.per_hour == pytest.approx(price, abs=0.001)
    whole = machines.hourly_price(machine, accelerator, 1)
    assert whole is not None
    assert found.per_hour is not None
    assert found.per_hour < whole
    is_open = machine != "n1-standard-8"
    assert ("processors is not known here: they count in full" in found.sentence()) == is_open
    assert bool(found.to_dict()["remark"]) == is_open


@pytest.mark.parametrize(("machine", "accelerator", "told"), [
    ("n1-standard-8", "NVIDIA_TESLA_V100", "the spot price of NVIDIA_TESLA_V100 is not known here"),
    ("a2-ultragpu-1g", "NVIDIA_A100_80GB", "the spot price of NVIDIA_A100_80GB is not known here"),
    ("c3-highcpu-8", "", "the spot price of c3-highcpu-8 is not known here"),
])  # fmt: skip
def test_a_spot_price_that_nobody_has_written_down_is_said_to_be_unknown(
    machine: str, accelerator: str, told: str
) -> None:
    count = 1 if accelerator else 0
    found = prices.estimate_price(job(machine=machine, accelerator=accelerator, accelerators=count, spot=True))
    assert found.per_hour is None
    assert found.sentence() == f"{told}: see cloud.google.com/vertex-ai/pricing"


def test_every_machine_of_a_job_counts() -> None:
    place = {"machine": "n1-standard-16", "accelerator": "NVIDIA_TESLA_V100", "accelerators": 2, "workers": 2}
    price = prices.estimate_price(job(**place, reduction_servers=4))
    server = machines.hourly_price("n1-highcpu-16", "", 0)
    assert server is not None
    assert price.per_hour == pytest.approx(2 * (0.874 + 2 * 2.852) + 4 * server, abs=0.01)
    assert price.most == pytest.approx((price.per_hour or 0) * 24)
    assert len(price.parts) == 2


def test_hours_grow_with_the_rows_and_fall_with_the_machines() -> None:
    few, many = (prices.estimate_price(job(), training_rows=rows).hours or 0 for rows in (10_000, 100_000))
    assert few < many
    two = prices.estimate_price(job(workers=2), training_rows=100_000).hours or 0
    assert two < many
    assert prices.estimate_price(job(max_hours=0.2), training_rows=10_000_000).hours == 0.2
    assert prices.estimate_price(job()).hours is None
    told = prices.estimate_price(job(), training_rows=10_000)
    assert "TFLOP/s" in told.assumption
    assert "estimate" in told.sentence()
    assert machines.PRICES_OF in told.sentence()


def learning_hours(spec: Spec, rows: int, rate: Rate | None = None) -> float:
    return (prices.estimate_price(spec, training_rows=rows, rate=rate).hours or 0) - prices.STARTING_HOURS


def test_a_measured_rate_is_scaled_by_what_both_machines_may_come_to() -> None:
    rate = Rate(10.0, prices.estimate_processor_flops(2), "20260101-000000-oak", "2 processors")
    alike = job(machine="n1-standard-8", accelerators=0)
    spec = alike.model_copy(update={"training": alike.training.model_copy(update={"epochs": 3})})
    assert learning_hours(spec, 12_000, rate) == pytest.approx(3 * 12_000 / (10 * 8 / 2) / 3600)
    there = job(accelerator="NVIDIA_TESLA_V100", workers=2)
    told = prices.estimate_price(there, training_rows=12_000, rate=rate)
    for words in ("10 rows/s", "20260101-000000-oak on 2 processors", "0.03 TFLOP/s", "80 TFLOP/s", "12,000 rows"):
        assert words in told.assumption
        assert words in told.sentence()
    assert "rows/s" not in prices.estimate_price(there, training_rows=12_000).assumption


def test_no_rate_promises_steps_that_no_gpu_takes() -> None:
    fast = Rate(1e6, prices.estimate_processor_flops(1), "a-run", "1 processor")
    spec = job()
    steps = 4 * 32_000 / spec.training.batch_size
    assert learning_hours(spec, 32_000, fast) == pytest.approx(steps * prices.STEP_S / 3600)
    assert learning_hours(job("minilm", accelerator="NVIDIA_H100_80GB"), 32_000) == pytest.approx(
        steps * prices.STEP_S / 3600
    )


def test_the_rows_are_those_that_are_learned_from() -> None:
    """A fraction of them is taken when the data is read, before they are counted."""
    raw = {"data": {"train": "a.csv", "text": "t", "labels": "l", "fraction": 0.5}}
    half = specs.parse(raw, where="a test")
    whole = half.model_copy(update={"data": half.data.model_copy(update={"fraction": 1.0})})
    assert learning_hours(half, 50_000) == learning_hours(whole, 50_000)


@pytest.mark.parametrize(("name", "accelerator"), [
    ("Tesla T4", "NVIDIA_TESLA_T4"), ("Tesla V100-SXM2-16GB", "NVIDIA_TESLA_V100"), ("NVIDIA L4", "NVIDIA_L4"),
    ("NVIDIA A100-SXM4-40GB", "NVIDIA_TESLA_A100"), ("NVIDIA A100-SXM4-80GB", "NVIDIA_A100_80GB"),
    ("NVIDIA H100 80GB HBM3", "NVIDIA_H100_80GB"), ("Tesla P4", "NVIDIA_TESLA_P4"),
])  # fmt: skip
def test_gpus_are_known_by_the_names_of_their_driver(name: str, accelerator: str) -> None:
    assert prices.estimate_gpu_flops(name) == prices.FLOPS[accelerator]


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 3090", "NVIDIA L40S", "Apple GPU", ""])
def test_of_other_gpus_nothing_is_known(name: str) -> None:
    assert prices.estimate_gpu_flops(name) == 0


def test_a_budget_names_the_hours_that_it_allows() -> None:
    spec = job(machine="n1-standard-8", budget=10.0, max_hours=24.0)
    assert prices.check_budget(spec.vertex, prices.estimate_price(spec)).endswith("vertex.max_hours=11.9")
    spec = job(machine="n1-standard-8", budget=100.0)
    assert prices.check_budget(spec.vertex, prices.estimate_price(spec)) == ""


def test_quota_metrics_are_named_as_google_names_them() -> None:
    start = "aiplatform.googleapis.com/custom_model_training"
    assert machines.quota_metric("NVIDIA_TESLA_T4") == f"{start}_nvidia_t4_gpus"
    assert machines.quota_metric("NVIDIA_A100_80GB") == f"{start}_nvidia_a100_80gb_gpus"
    assert machines.quota_metric("NVIDIA_TESLA_T4", spot=True) == f"{start}_preemptible_nvidia_t4_gpus"
