"""The language model's loss: the whole softmax where it is small or only looked at, else an estimate of it."""

import pytest
import torch
from torch.nn.functional import cross_entropy, linear

from tagline.models import awd_lstm
from tagline.models.awd_lstm import LanguageModel, Shape

TOKENS = 400
FOLLOWING = torch.arange(60).reshape(3, 20) % 50


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> LanguageModel:
    monkeypatch.setattr(awd_lstm, "OTHERS", 40)
    torch.manual_seed(0)
    return LanguageModel(Shape(emb_sz=8, n_hid=12, n_layers=2), tokens=TOKENS).train()


def new_outputs() -> torch.Tensor:
    return (5 * torch.randn(3, 20, 8, generator=torch.Generator().manual_seed(1))).requires_grad_()


def whole_loss(model: LanguageModel, outputs: torch.Tensor) -> torch.Tensor:
    logits = linear(outputs, model.encoder.embedding.weight, model.bias)
    return cross_entropy(logits.flatten(0, 1), FOLLOWING.flatten())


def test_a_few_tokens_count_for_all_others(model: LanguageModel) -> None:
    outputs, expected = new_outputs(), new_outputs()
    whole = whole_loss(model, expected)
    whole.backward()  # type: ignore[no-untyped-call]
    losses = torch.stack([model.loss(outputs, FOLLOWING) for _ in range(300)])
    losses.mean().backward()  # type: ignore[no-untyped-call]
    assert float(losses.detach().std()) > 0
    assert float(losses.detach().mean()) == pytest.approx(float(whole.detach()), rel=2e-3)
    assert outputs.grad is not None
    assert expected.grad is not None
    assert torch.allclose(outputs.grad, expected.grad, atol=0.05 * float(expected.grad.abs().max()))


def test_where_nothing_is_learned_all_tokens_count(model: LanguageModel) -> None:
    assert torch.equal(model.eval().loss(new_outputs(), FOLLOWING), whole_loss(model, new_outputs()))


def test_where_there_are_few_tokens_all_count(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awd_lstm, "OTHERS", TOKENS - 50)
    assert torch.equal(model.loss(new_outputs(), FOLLOWING), whole_loss(model, new_outputs()))


def test_tokens_that_neither_follow_nor_are_drawn_learn_nothing(model: LanguageModel) -> None:
    model.loss(new_outputs(), FOLLOWING).backward()  # type: ignore[no-untyped-call]
    assert model.bias is not None
    assert model.bias.grad is not None
    assert int((model.bias.grad != 0).sum()) == 50 + 40
