"""Labels that are probably wrong, found where they were planted."""

import numpy as np

from tagline.evaluation.label_errors import find_suspects


def test_planted_errors_come_first() -> None:
    random = np.random.default_rng(1)
    clean = random.integers(0, 4, 2000)
    scores = np.full((2000, 4), 0.05)
    scores[np.arange(2000), clean] = 0.85
    scores = 0.7 * scores + 0.3 * random.dirichlet(np.ones(4), 2000)
    given = clean.copy()
    planted = random.choice(2000, 100, replace=False)
    given[planted] = (given[planted] + random.integers(1, 4, 100)) % 4
    found = find_suspects(scores, given)
    assert {each.row for each in found[:100]} == set(planted.tolist())
    assert all(each.suggested == clean[each.row] and each.given == given[each.row] for each in found[:100])
    assert [each.doubt for each in found] == sorted((each.doubt for each in found), reverse=True)


def test_a_missing_and_a_surplus_label_of_task_multi_are_told_apart() -> None:
    truth = np.array([[True, False]] * 20 + [[False, True]] * 20)
    scores = np.where(truth, 0.9, 0.1)
    truth[0] = [True, True]  # the second is too many
    truth[39] = [False, False]  # the second is missing
    found = {(each.row, each.given, each.suggested) for each in find_suspects(scores, truth)}
    assert found == {(0, 1, None), (39, None, 1)}


def test_a_label_that_the_model_never_finds_is_not_doubted_for_that() -> None:
    truth = np.zeros((100, 2), bool)
    truth[:50, 0] = truth[:2, 1] = True
    scores = np.where(truth, 0.95, 0.05)
    scores[:, 1] = 0.02
    scores[0] = [0.01, 0.001]
    found = {(each.row, each.given): each.doubt for each in find_suspects(scores, truth)}
    assert found[0, 0] > 0.9
    assert found[0, 1] < 0.1


def test_nothing_is_suspected_of_a_model_that_agrees_and_of_no_rows() -> None:
    assert find_suspects(np.array([[0.6, 0.4], [0.4, 0.6]]), np.array([0, 1])) == []
    assert find_suspects(np.zeros((0, 2)), np.zeros(0, int)) == []
