"""Columns of files in the shapes of published ones: guessed right, or asked for, and never silently wrong."""

from pathlib import Path

import pytest
from published_files import HELD_OUT, PUBLISHED, WRITTEN_LAST, WRITTEN_LATER, Published

from tagline.data.columns import ResolvedSpec, resolve
from tagline.data.readers import inspect
from tagline.errors import SpecError

FILES = (*PUBLISHED, *WRITTEN_LATER, *WRITTEN_LAST)
ASKED = frozenset((
    "stsb", "dbpedia_classes", "liar", "tickets", "complaints", "twitter_entities", "squad", "rating_and_kind",
    "metadata_only", "patent_phrases", "readability", "wine", "medical_transcriptions", "bitext", "fake_jobs",
    "scitail", "persuade", "hotels", "massive", "helpdesk", "stance", "wiki_attack",
    "flag_or_words", "spaced_tags", "token_tags", "political_social_media", "tmdb", "trump_tweets", "wiki_plots",
))  # fmt: skip
"""Files whose columns and values do not say which of several things is to be learned."""
MENTIONED = {
    "civil_comments": "target",
    "ucberkeley": "sentiment",
    "fiqa": "sentiment_score",
    "rt_critics": "review_type",
}
"""Files where another column than the guessed one is as good or better, and is named with the guess."""


def write(file: Published, directory: Path) -> str:
    path = directory / f"{file.name}.{file.suffix}"
    path.write_text(file.content)
    return str(path)


def find_mentioned(resolved: ResolvedSpec) -> str:
    return " ".join(guess.partition("it could be ")[2] for guess in resolved.guesses)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_published_file_is_read_right_or_asked_about(file: Published, tmp_path: Path) -> None:
    path = write(file, tmp_path)
    if file.format != "jsonl" and file.name != "emotions_txt":
        assert inspect(path).header is file.header
    if file.name in ASKED:
        with pytest.raises(SpecError, match="cannot tell which column") as asked:
            resolve(path)
        assert asked.value.hint.startswith(("say which: data.labels=", "say which: data.text="))
        return
    resolved = resolve(path)
    if file.name in MENTIONED:
        assert MENTIONED[file.name] in find_mentioned(resolved)
        return
    assert resolved.spec.data.text in file.text
    assert resolved.spec.data.labels in file.labels
    assert resolved.spec.data.label_separator == file.label_separator


def test_most_files_need_no_question() -> None:
    assert len({file.name for file in FILES}) == len(FILES) == 178
    for files in (FILES, HELD_OUT, WRITTEN_LAST):
        answerable = {file.name for file in files if file.labels}
        assert len(answerable - ASKED - MENTIONED.keys()) >= 0.85 * len(answerable)


@pytest.mark.parametrize("name", ["qqp", "mrpc", "sick", "rte", "qnli"])
def test_a_pair_is_undone_by_the_override_that_its_guess_names(name: str, tmp_path: Path) -> None:
    path = write(next(file for file in PUBLISHED if file.name == name), tmp_path)
    guessed = resolve(path)
    override = guessed.guesses[0].partition("for one text: ")[2]
    assert override.startswith("data.text=")
    assert resolve(path, [override]).spec.data.text == guessed.spec.data.text[0]
