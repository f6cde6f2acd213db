"""The training loop by itself: rates, losses, steps, parts of batches, and going on from a kept state."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from tagline.models.nn import tokens
from tagline.models.nn.devices import Device
from tagline.models.nn.loop import Examples, Loss, ParameterGroup, TrainingLoop, rate_at
from tagline.models.nn.workers import ComputeContext, World
from tagline.spec import Training

ROWS, LABELS = 50, 3


class Bag(nn.Module):
    """As little as can learn: the mean of the tokens' vectors, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(0)
        self.embedding = nn.Parameter(torch.randn(100, 8, generator=random))
        self.head = nn.Parameter(torch.randn(8, LABELS, generator=random))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        mask = attention_mask[:, :, None].float()
        return (self.embedding[input_ids] * mask).sum(dim=1) / mask.sum(dim=1) @ self.head


def new_loop(
    *,
    most_tokens: int = 8192,
    precision: Any = "float32",
    weights: Tensor | None = None,
    scale: float = 1.0,
    seed: int = 1,
    learning_rate: float = 0.01,
    epochs: int = 2,
    **training: Any,
) -> TrainingLoop:
    random = np.random.default_rng(0)
    texts = [[(random.integers(0, 100, random.integers(1, 30)).tolist(), [])] for _ in range(ROWS)]
    sequences = tokens.in_memory(texts, with_types=False)
    targets = random.integers(0, LABELS, ROWS)
    loss = Loss(targets, task="single", labels=LABELS, balanced=False, smoothing=0.0)
    examples = Examples(sequences, torch.from_numpy(targets), torch.ones(ROWS) if weights is None else weights, pad=0)
    groups = [ParameterGroup(["embedding"], scale, decays=True), ParameterGroup(["head"], 1.0, decays=False)]
    settings = Training(**{"batch_size": 8, **training})
    context = ComputeContext(Device("cpu", "CPU"), precision, World(), most_tokens)
    return TrainingLoop(
        Bag(),
        groups,
        examples,
        loss,
        learning_rate=learning_rate,
        epochs=epochs,
        training=settings,
        seed=seed,
        context=context,
    )


def loss_of(loop: TrainingLoop, rows: Any) -> Tensor:
    return loop._compute_loss(loop._compute_logits(rows), rows)


def run(loop: TrainingLoop) -> dict[str, Tensor]:
    for _ in loop.steps():
        pass
    return {name: tensor.clone() for name, tensor in loop.weights().items()}


def same(first: dict[str, Tensor], second: dict[str, Tensor], *, tolerance: float = 0.0) -> bool:
    return all(torch.allclose(first[name], second[name], rtol=0, atol=tolerance) for name in first)


@given(total=st.integers(1, 500), share=st.floats(0, 1), where=st.floats(0, 1, exclude_max=True))
def test_a_rate_is_above_0_and_never_above_1(total: int, share: float, where: float) -> None:
    assert 0 < rate_at(int(where * total), total=total, warmup_share=share) <= 1


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("total", [1, 2, 10, 97])
def test_the_rate_goes_up_to_1_and_then_down(total: int, share: float) -> None:
    rates = [rate_at(step, total=total, warmup_share=share) for step in range(total)]
    top = rates.index(max(rates))
    assert max(rates) == 1
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert len(set(rates[:top])) == top, "no two steps on the way up are the same"


@pytest.mark.parametrize(
    ("share", "rates"),
    [
        (0.0, [1.0, 0.75, 0.5, 0.25]),
        (0.5, [0.5, 1.0, 1.0, 0.5]),
        (1.0, [0.25, 0.5, 0.75, 1.0]),
    ],
)
def test_the_rates_of_four_steps(share: float, rates: list[float]) -> None:
    assert [rate_at(step, total=4, warmup_share=share) for step in range(4)] == rates


LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.0, 1.0, -3.0]])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_a_single_label_is_the_cross_entropy(smoothing: float) -> None:
    loss = Loss(np.array([0, 2]), task="single", labels=3, balanced=False, smoothing=smoothing)
    truth = torch.tensor([0, 2])
    expected = [cross_entropy(LOGITS[i], truth[i], label_smoothing=smoothing) for i in range(2)]
    assert torch.allclose(loss(LOGITS, truth), torch.stack(expected))
    assert loss.weights(truth).tolist() == [1, 1]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_many_labels_is_the_mean_over_them(smoothing: float) -> None:
    truth = torch.tensor([[True, False, True], [False, False, False]])
    loss = Loss(truth.numpy(), task="multi", labels=3, balanced=False, smoothing=smoothing)
    soft = truth.float() * (1 - smoothing) + smoothing / 2
    assert torch.allclose(
        loss(LOGITS, truth), binary_cross_entropy_with_logits(LOGITS, soft, reduction="none").mean(dim=1)
    )
    assert loss.weights(truth).tolist() == [1, 1]


def test_balanced_every_label_counts_as_much_as_another() -> None:
    truth = np.array([0] * 6 + [1] * 3 + [2])
    loss = Loss(truth, task="single", labels=3, balanced=True, smoothing=0.0)
    weights = loss.weights(torch.from_numpy(truth))
    assert weights.sum() == pytest.approx(10)
    assert [float(weights[truth == label].sum()) for label in range(3)] == pytest.approx([10 / 3] * 3)


def test_balanced_a_label_of_many_counts_as_much_where_it_is_as_where_it_is_not() -> None:
    truth = torch.tensor([[True, False]] * 2 + [[False, True]] * 8)
    loss = Loss(truth.numpy(), task="multi", labels=2, balanced=True, smoothing=0.0)
    logits = torch.zeros(10, 2, requires_grad=True)
    loss(logits, truth).sum().backward()
    assert logits.grad is not None
    assert logits.grad.sum(dim=0).tolist() == pytest.approx([0, 0], abs=1e-5)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_from_the_best_constant_nothing_is_gained_without_looking_at_a_text(balanced: bool, smoothing: float) -> None:
    truth = torch.from_numpy(np.random.default_rng(4).random((5000, 4)) < [0.5, 0.02, 0.2, 0.9])
    loss = Loss(truth.numpy(), task="multi", labels=4, balanced=balanced, smoothing=smoothing)
    constant = loss.best_constant().requires_grad_()
    loss(constant.expand(len(truth), 4), truth).mean().backward()  # type: ignore[no-untyped-call]
    assert constant.grad is not None
    assert constant.grad.abs().max() < 1e-4


def test_the_best_constant_of_a_label_that_is_nowhere_is_a_number() -> None:
    truth = np.zeros((8, 2), bool)
    truth[:, 1] = True
    constant = Loss(truth, task="multi", labels=2, balanced=False, smoothing=0.0).best_constant()
    assert constant.tolist() == pytest.approx([-np.log(17), np.log(17)], rel=1e-5)


@pytest.mark.parametrize("rows", [20, 2000])
def test_smoothing_leaves_rare_labels_where_they_are_not(rows: int) -> None:
    """However rare a label is and however much it counts, the best score of a row is what smoothing says."""
    truth = torch.zeros(rows, 2, dtype=torch.bool)
    truth[0, 0] = True  # the second is in no row
    loss = Loss(truth.numpy(), task="multi", labels=2, balanced=True, smoothing=0.1)
    best = torch.logit(torch.tensor([[0.95, 0.05], [0.05, 0.05]])).requires_grad_()
    loss(best, truth[:2]).sum().backward()  # type: ignore[no-untyped-call]
    assert best.grad is not None
    assert best.grad.abs().max() < 1e-4


def test_a_label_that_no_row_has_is_no_division_by_zero() -> None:
    for task, truth in (("single", np.array([0, 0, 1])), ("multi", np.array([[True, False, False]] * 3))):
        loss = Loss(truth, task=task, labels=3, balanced=True, smoothing=0.0)
        targets = torch.from_numpy(truth)
        assert torch.isfinite(loss(torch.zeros(3, 3), targets)).all()
        assert torch.isfinite(loss.weights(targets)).all()


def test_every_row_is_counted_and_every_epoch_ends_worth_measuring() -> None:
    steps = list(new_loop(epochs=3).steps())
    assert [step.number for step in steps] == list(range(1, 22))
    assert {step.total for step in steps} == {21}
    assert [step.number for step in steps if step.evaluate] == [7, 14, 21]
    assert [steps[number - 1].rows for number in (7, 14, 21)] == [ROWS, 2 * ROWS, 3 * ROWS]
    assert [step.rows for step in steps] == sorted({step.rows for step in steps})


@pytest.mark.parametrize(
    ("every", "measured"), [(1, list(range(1, 15))), (4, [4, 8, 12, 14]), (7, [7, 14]), (100, [14])]
)
def test_every_n_steps_and_the_last_are_worth_measuring(every: int, measured: list[int]) -> None:
    assert [step.number for step in new_loop(evaluate_every=every).steps() if step.evaluate] == measured


def test_a_step_says_its_learning_rate() -> None:
    rates = [step.settings["learning_rate"] for step in new_loop(learning_rate=0.5, warmup_share=0.0).steps()]
    assert rates == pytest.approx([0.5 * (14 - step) / 14 for step in range(14)])


@pytest.mark.parametrize("batch_size", [ROWS, ROWS + 1, 10_000])
def test_a_batch_larger_than_the_data_is_one_step_an_epoch(batch_size: int) -> None:
    steps = list(new_loop(batch_size=batch_size, epochs=3).steps())
    assert [step.rows for step in steps] == [ROWS, 2 * ROWS, 3 * ROWS]
    assert all(step.evaluate for step in steps)


@pytest.mark.parametrize("most_tokens", [1, 16, 100])
def test_a_batch_taken_in_parts_gives_the_same_weights(most_tokens: int) -> None:
    weights = torch.linspace(0.1, 3, ROWS)
    whole, parts = new_loop(weights=weights), new_loop(weights=weights, most_tokens=most_tokens)
    losses = [[step.loss for step in loop.steps()] for loop in (whole, parts)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert same(whole.weights(), parts.weights(), tolerance=1e-5)


def test_a_row_that_weighs_twice_is_a_row_that_is_there_twice() -> None:
    weights = torch.ones(ROWS)
    weights[:10] = 2
    loop = new_loop(weights=weights, batch_size=ROWS, epochs=1)
    [step] = loop.steps()
    alone = new_loop(batch_size=ROWS)
    every = np.arange(ROWS)
    with torch.no_grad():
        losses = float(loss_of(alone, every) + loss_of(alone, every[:10]))
    assert step.loss == pytest.approx(losses / (ROWS + 10), rel=1e-5)


def test_the_loss_of_a_step_is_that_before_it() -> None:
    loop = new_loop(batch_size=ROWS, epochs=1)
    with torch.no_grad():
        before = float(loss_of(loop, np.arange(ROWS))) / ROWS
    [step] = loop.steps()
    assert step.loss == pytest.approx(before, rel=1e-5)


def test_learning_lowers_the_loss() -> None:
    steps = list(new_loop(epochs=30, learning_rate=0.05).steps())
    assert steps[-1].loss < 0.3 * steps[0].loss


def test_a_group_learns_at_its_share_of_the_rate() -> None:
    before = Bag().embedding
    moved = [(run(new_loop(scale=scale, weight_decay=0.0))["embedding"] - before).abs().max() for scale in (1.0, 0.01)]
    assert 0 < moved[1] < 0.05 * moved[0]


def test_weight_decay_pulls_only_what_decays() -> None:
    with_decay, without = (run(new_loop(epochs=1, batch_size=ROWS, weight_decay=decay)) for decay in (5.0, 0.0))
    assert torch.equal(with_decay["head"], without["head"])
    assert with_decay["embedding"].norm() < without["embedding"].norm()


def test_one_step_cannot_throw_the_weights_far_away() -> None:
    """Gradients are clipped: of a loss a thousand times steeper only the direction is left."""
    plain, steep = new_loop(batch_size=ROWS, epochs=1), new_loop(batch_size=ROWS, epochs=1)
    steep.loss = lambda logits, targets: 1000 * plain.loss(logits, targets)  # type: ignore[assignment]
    norms = []
    for loop in (plain, steep):
        gradients: list[Tensor] = []
        loop.optimizer.register_step_pre_hook(
            lambda optimizer, *_, found=gradients: found.extend(
                parameter.grad.clone() for group in optimizer.param_groups for parameter in group["params"]
            )
        )
        run(loop)
        norms.append(float(torch.stack([gradient.norm() for gradient in gradients]).norm()))
    assert norms[0] < 1
    assert norms[1] == pytest.approx(1, abs=1e-3)


def test_what_is_kept_is_the_mean_of_the_weights_along_the_way() -> None:
    loop, plain = new_loop(), new_loop(averaging=False)
    passed = []
    for step, _ in zip(loop.steps(), plain.steps(), strict=True):
        last = plain.weights()
        passed.append({name: tensor.clone() for name, tensor in last.items()})
        assert same(dict(loop.network.named_parameters()), last), "the steps go on from where the last one led"
        shares = np.cumprod(1 - 3 / (2 + np.arange(step.number, 0, -1)))  # of what was kept before, from the last on
        counts = np.append(1, shares[:-1])[::-1] * 3 / (2 + np.arange(1, step.number + 1))
        mean = {name: sum(n * each[name] for n, each in zip(counts, passed, strict=True)) for name in last}
        assert same(loop.weights(), mean, tolerance=1e-5)
        with loop.use_average():
            assert same(dict(loop.network.named_parameters()), mean, tolerance=1e-5)
    assert not same(loop.weights(), last)
    assert same(dict(loop.network.named_parameters()), loop.weights()), "the network ends as what was measured"


@pytest.mark.parametrize("averaging", [True, False])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("stopped_after", [1, 6, 7, 8, 13])
def test_going_on_from_a_kept_state_ends_with_the_same_bits(
    precision: str, stopped_after: int, *, averaging: bool
) -> None:
    whole = new_loop(precision=precision, averaging=averaging)
    expected = [(step.number, step.loss, step.rows, step.settings) for step in whole.steps()]
    stopped, resumed = (new_loop(precision=precision, averaging=averaging) for _ in range(2))
    for step in stopped.steps():
        if step.number == stopped_after:
            break
    resumed.network.load_state_dict(stopped.weights())
    resumed.restore(stopped.state())
    rest = [(step.number, step.loss, step.rows, step.settings) for step in resumed.steps()]
    assert rest == expected[stopped_after:]
    assert same(resumed.weights(), whole.weights())


def test_the_scale_of_float16_losses_is_kept() -> None:
    stopped, resumed = new_loop(precision="float16"), new_loop(precision="float16")
    next(iter(stopped.steps()))
    stopped.scaler.update(8.0)
    resumed.restore(stopped.state())
    assert resumed.scaler.get_scale() == 8


def test_the_seed_decides_the_order() -> None:
    first, again, other = (run(new_loop(seed=seed)) for seed in (1, 1, 2))
    assert same(first, again)
    assert not same(first, other)


def test_at_the_end_there_are_no_more_steps() -> None:
    loop = new_loop()
    before = run(loop)
    assert list(loop.steps()) == []
    assert same(loop.weights(), before)


def test_windows_of_a_long_text_count_together_as_much_as_a_short_text() -> None:
    """Also where a batch holds nothing but windows: its gradient is small, and not blown up to that of a full one."""
    weights = torch.ones(ROWS)
    weights[10:] = 0.05
    loop = new_loop(weights=weights)
    full = new_loop()
    for rows in (np.arange(8), np.arange(20, 28)):
        mean = sum(loss_of(full, np.array([row])).item() * weights[row].item() for row in rows) / 8
        assert loop._run_step(rows, rate=0.0)[0] == pytest.approx(mean / loop.mean_weight, rel=1e-4)


@pytest.mark.parametrize("most_tokens", [8192, 40])
def test_a_step_tells_what_was_said_of_its_rows_before_it_learned_from_them(most_tokens: int) -> None:
    loop, before = new_loop(most_tokens=most_tokens, epochs=1, averaging=False), new_loop(epochs=1)
    seen = []
    for step in loop.steps():
        assert step.scores_before_update
        rows, scores = step.scores_before_update
        if step.number == 1:
            untouched = torch.softmax(before._compute_logits(rows), dim=1).detach().numpy()
            assert np.allclose(scores, untouched, atol=1e-6)
        assert len(scores) == len(rows)
        seen += rows.tolist()
    assert sorted(seen) == list(range(ROWS))
