"""What a job would cost."""

import pytest

from tagline import machines, prices
from tagline import spec as specs
from tagline.spec import Spec


def job(**vertex: object) -> Spec:
    return specs.parse({"data": {"train": "a.csv", "text": "t", "labels": "l"}, "vertex": vertex}, where="a test")


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
    assert machines.hourly_price("g2-standard-8", "NVIDIA_L4", 1, spot=True) is None
    price = prices.price_of(job(machine="c3-highcpu-8", accelerators=0, budget=5.0), training_rows=100)
    assert price.most is None
    assert price.expected is None
    assert "not known here" in price.sentence()
    assert "not known here" in prices.over_budget(job(machine="c3-highcpu-8", accelerators=0, budget=5.0).vertex, price)


def test_spot_machines_are_cheaper() -> None:
    whole = machines.hourly_price("n1-standard-4", "NVIDIA_TESLA_T4", 1)
    spot = machines.hourly_price("n1-standard-4", "NVIDIA_TESLA_T4", 1, spot=True)
    assert whole is not None
    assert spot is not None
    assert 0.3 * whole < spot < 0.6 * whole


def test_every_machine_of_a_job_counts() -> None:
    place = {"machine": "n1-standard-16", "accelerator": "NVIDIA_TESLA_V100", "accelerators": 2, "workers": 2}
    price = prices.price_of(job(**place, reduction_servers=4))
    server = machines.hourly_price("n1-highcpu-16", "", 0)
    assert server is not None
    assert price.per_hour == pytest.approx(2 * (0.874 + 2 * 2.852) + 4 * server, abs=0.01)
    assert price.most == pytest.approx((price.per_hour or 0) * 24)
    assert len(price.parts) == 2


def test_hours_grow_with_the_rows_and_fall_with_the_machines() -> None:
    few, many = (prices.price_of(job(), training_rows=rows).hours or 0 for rows in (10_000, 100_000))
    assert few < many
    two = prices.price_of(job(workers=2), training_rows=100_000).hours or 0
    assert two < many
    assert prices.price_of(job(max_hours=0.2), training_rows=10_000_000).hours == 0.2
    assert prices.price_of(job()).hours is None
    told = prices.price_of(job(), training_rows=10_000)
    assert "TFLOP/s" in told.assumption
    assert "estimate" in told.sentence()
    assert machines.PRICES_OF in told.sentence()


def test_a_budget_names_the_hours_that_it_allows() -> None:
    spec = job(machine="n1-standard-8", budget=10.0, max_hours=24.0)
    assert prices.over_budget(spec.vertex, prices.price_of(spec)).endswith("vertex.max_hours=11.9")
    spec = job(machine="n1-standard-8", budget=100.0)
    assert prices.over_budget(spec.vertex, prices.price_of(spec)) == ""


def test_quota_metrics_are_named_as_google_names_them() -> None:
    start = "aiplatform.googleapis.com/custom_model_training"
    assert machines.quota_metric("NVIDIA_TESLA_T4") == f"{start}_nvidia_t4_gpus"
    assert machines.quota_metric("NVIDIA_A100_80GB") == f"{start}_nvidia_a100_80gb_gpus"
    assert machines.quota_metric("NVIDIA_TESLA_T4", spot=True) == f"{start}_preemptible_nvidia_t4_gpus"
