"""Which language the packaged encoders have read, and whether texts are in it."""

import csv
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from samples import SUPPORT

from tagline.data.language_check import are_english, check_language
from tagline.models import ValidatesTexts
from tagline.models.encoder import Encoder, EncoderOptions
from tagline.models.fewshot import FewShot, FewShotOptions
from tagline.models.linear import Linear
from tagline.models.ulmfit import Ulmfit, UlmfitOptions

GERMAN = (
    "Das Paket ist leider nie angekommen, obwohl es laut Sendungsverfolgung zugestellt wurde.",
    "Ich war mit dem Zimmer sehr zufrieden, das Personal war freundlich und das Essen gut.",
    "Warum wurde mir der Betrag zweimal von meinem Konto abgebucht? Bitte um schnelle Antwort.",
)
FRENCH = (
    "Le colis n'est jamais arrivé alors que le suivi indique qu'il a été livré hier soir.",
    "La chambre était propre et le personnel très aimable, mais le petit déjeuner est trop cher.",
)
DUTCH = (
    "Het pakket is nooit aangekomen, terwijl er staat dat het was bezorgd.",
    "De kamer was schoon en we komen zeker terug.",
)
KOREAN = ("택배가 아직 도착하지 않았는데 배송 완료라고 나옵니다.", "방이 깨끗하고 직원들이 정말 친절했어요.")


@pytest.fixture(scope="module")
def messages() -> list[str]:
    with (SUPPORT / "messages.csv").open(encoding="utf-8", newline="") as file:
        return [row["message"] for row in csv.DictReader(file)]


@pytest.mark.parametrize("texts", [GERMAN, FRENCH, DUTCH, KOREAN])
def test_other_languages_do_not_look_english(texts: tuple[str, ...]) -> None:
    assert not are_english(texts * 60)


def test_a_few_words_are_told_by_their_letters_alone() -> None:
    assert are_english(DUTCH)
    assert not are_english(KOREAN)
    assert not are_english(["这部电影非常好看"])


def test_of_long_texts_the_beginning_counts() -> None:
    assert are_english(["where is my parcel, and when will it be here? " * 30 + "é" * 5000] * 3)


def test_english_looks_english_alone_and_in_pairs(messages: list[str]) -> None:
    assert are_english(messages)
    assert are_english(pairwise(messages))
    assert not are_english(zip(GERMAN * 60, FRENCH * 90, strict=True))


def test_a_packaged_encoder_is_doubted_for_other_languages_alone(messages: list[str]) -> None:
    for family, options in ((Encoder, EncoderOptions), (FewShot, FewShotOptions)):
        assert isinstance(family, ValidatesTexts)
        [found] = family.check_texts(options(), KOREAN * 60)
        assert found.message == "minilm has read English, and these texts do not look English"
        assert "model.pretrained=" in found.advice
        assert list(family.check_texts(options(), messages)) == []
        assert list(family.check_texts(options(pretrained="xlm-roberta-base"), KOREAN * 60)) == []
    assert not isinstance(Linear, ValidatesTexts)
    assert list(check_language("minilm", [])) == []


def test_a_language_model_is_doubted_where_it_knows_few_of_the_tokens(
    fastai: Callable[[str], Path], messages: list[str]
) -> None:
    english, japanese = (UlmfitOptions(pretrained=str(fastai(name))) for name in ("en_forward", "ja_forward"))
    assert list(Ulmfit.check_texts(UlmfitOptions(), KOREAN)) == []
    assert list(Ulmfit.check_texts(english, messages)) == []
    for options in (english, japanese):
        [found] = Ulmfit.check_texts(options, KOREAN)
        assert found.message.startswith("model.pretrained knows ")
    backward = UlmfitOptions(direction="backward", pretrained_backward=str(fastai("en_backward")))
    [found] = Ulmfit.check_texts(backward, KOREAN)
    assert found.message.startswith("model.pretrained_backward knows ")
