"""The language model's loss, estimated or whole; and a classifier of texts longer than what counts of them."""

import pytest
import torch
from torch.nn.functional import cross_entropy, linear

from tagline.models.ulmfit import awd_lstm
from tagline.models.ulmfit.awd_lstm import AwdLstm, AwdLstmClassifier, LanguageModel, Shape

TOKENS = 400
FOLLOWING = torch.arange(60).reshape(3, 20) % 50


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> LanguageModel:
    monkeypatch.setattr(awd_lstm, "NEGATIVE_SAMPLES", 40)
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
    monkeypatch.setattr(awd_lstm, "NEGATIVE_SAMPLES", TOKENS - 50)
    assert torch.equal(model.loss(new_outputs(), FOLLOWING), whole_loss(model, new_outputs()))


def test_tokens_that_neither_follow_nor_are_drawn_learn_nothing(model: LanguageModel) -> None:
    model.loss(new_outputs(), FOLLOWING).backward()  # type: ignore[no-untyped-call]
    assert model.bias is not None
    assert model.bias.grad is not None
    assert int((model.bias.grad != 0).sum()) == 50 + 40


WINDOW, MOST = 4, 8
LENGTHS = (3, 8, 9, 12, 13, 30)


@pytest.fixture
def classifier() -> AwdLstmClassifier:
    torch.manual_seed(0)
    encoder = AwdLstm(Shape(emb_sz=8, n_hid=12, n_layers=2).scale_dropout(0), tokens=TOKENS)
    return AwdLstmClassifier(encoder, labels=3, drop=0.0, window=WINDOW, most=MOST)


def long_and_short() -> dict[str, torch.Tensor]:
    """Rows of these lengths, in which no token stands twice, but for the padding."""
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    ids = torch.arange(1, mask.numel() + 1).reshape(mask.shape)
    return {"input_ids": ids * mask, "attention_mask": mask.long()}


def test_a_long_text_read_in_windows_is_answered_as_in_one_go(classifier: AwdLstmClassifier) -> None:
    inputs = long_and_short()
    in_windows, raw, dropped = classifier.eval()(**inputs)
    assert torch.allclose(in_windows, classifier.read_at_once(**inputs), atol=1e-6)
    assert raw.shape[1] == dropped.shape[1] == MOST  # and not 30: what came before left its state alone


def test_what_comes_before_the_windows_that_count_changes_the_answer_and_learns_nothing(
    classifier: AwdLstmClassifier,
) -> None:
    inputs = long_and_short()
    logits = classifier.train()(**inputs)[0]
    logits.square().sum().backward()
    gradient = classifier.encoder.embedding.weight.grad
    assert gradient is not None
    learned = set(gradient.abs().sum(dim=1).nonzero().flatten().tolist()) - {0}
    counted = {3: 0, 8: 0, 9: 4, 12: 4, 13: 8, 30: 24}  # by length, the place from which a text counts
    assert learned == {
        row * max(LENGTHS) + place + 1 for row, size in enumerate(LENGTHS) for place in range(counted[size], size)
    }
    before = classifier.eval()(**inputs)[0]
    inputs["input_ids"][-1, 0] = 399
    after = classifier(**inputs)[0]
    assert torch.equal(before[:-1], after[:-1])
    assert not torch.equal(before[-1], after[-1])
