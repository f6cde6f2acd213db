"""Texts that are nearly the same."""

import random

from tagline.data import near_duplicates

WORDS = [
    f"{first}{second}"
    for first in ("ba", "ko", "li", "mu", "ta", "ze")
    for second in ("ra", "sil", "non", "dek", "fup")
]


def made(seed: int, length: int = 30) -> list[str]:
    return random.Random(seed).choices(WORDS, k=length)


def test_a_copy_with_a_word_changed_is_found_among_thousands() -> None:
    others = [" ".join(made(seed)) for seed in range(3000)]
    changed = made(1234)
    changed[3] = "different"
    found = near_duplicates.find_pairs([" ".join(made(99_999)), " ".join(changed)], others)
    assert [(mine, other) for mine, other, _ in found] == [(1, 1234)]
    assert found[0][2] >= near_duplicates.ALIKE


def test_hardly_any_copy_of_many_is_missed() -> None:
    originals = [made(seed, 40) for seed in range(1000)]
    copies = [[*words[:-1], "different", "ending"] for words in originals]  # 37 of 41 shingles are shared
    found = near_duplicates.find_pairs(map(" ".join, copies), map(" ".join, originals))
    assert sum(mine == other for mine, other, _ in found) >= 998


def test_case_punctuation_and_white_space_do_not_count() -> None:
    text = "Where is my parcel? It should have been here on Monday already."
    [(mine, other, alike)] = near_duplicates.find_pairs(
        [text], ["something else altogether, long enough", text.upper() + "!!"]
    )
    assert (mine, other, alike) == (0, 1, 1.0)


def test_short_texts_and_texts_without_words_are_left_alone() -> None:
    assert near_duplicates.find_pairs(["thank you", "", "!!!", "ok"], ["thank you", "", "!!!", "ok"]) == []
    assert near_duplicates.find_pairs([], ["a text that is long enough to be compared"]) == []


def test_pairs_are_alike_when_both_texts_are() -> None:
    first = ("how do I send this back to you", "you print the label and bring it to a shop")
    second = (first[0], "our offices are closed between Christmas and the new year")
    assert [found[:2] for found in near_duplicates.find_pairs([first], [second, first])] == [(0, 1)]


def test_copies_of_copies_are_one_cluster() -> None:
    words = made(7, 60)
    nearly = [*words[:3], "other", *words[4:]]
    hardly = [*nearly[:57], "again", *nearly[58:]]
    texts = [" ".join(each) for each in (made(1), words, made(2), nearly, hardly, made(3))] + ["short", "short"]
    assert near_duplicates.cluster_texts(texts).tolist() == [0, 1, 2, 1, 1, 5, 6, 7]
    assert near_duplicates.cluster_texts([]).tolist() == []


def test_a_million_of_the_same_are_one_finding() -> None:
    form = "this is the form letter that everybody sends us when nothing else is left to say"
    found = near_duplicates.find_pairs([form] * 50, [form + f" {number}" for number in range(500)])
    assert len(found) == 50
