"""Exercise 19: other right solutions pass, and what is wrong is shown with its texts."""

import pytest
import torch

from lessons.check import EXERCISES
from lessons.check.ex19_ragged_commit import padded, small_cases
from nanospec.cache import Cache
from nanospec.text import Text

EXERCISE = EXERCISES[19]
HEAD = "def commit(tokens, length, draft, accepted, token):\n"
TAIL = EXERCISE.answer[EXERCISE.answer.index("def slots"):]
START = "import torch\n\n\n"
WITH_A_LOOP = START + HEAD + '''
    tokens, length = tokens.clone(), length.clone()
    for b in range(len(length)):
        new = torch.cat([draft[b, 1:1 + accepted[b]], token[b:b + 1]])
        tokens[b, length[b]:length[b] + len(new)] = new
        length[b] += len(new)
    return tokens, length


''' + TAIL
WITH_A_MASK = START + HEAD + '''
    column, k = torch.arange(tokens.shape[1]), accepted[:, None]
    at = column - length[:, None] + 1                                   # which column of the draft comes here
    new = draft.gather(1, at.clamp(0, draft.shape[1] - 1))
    tokens = torch.where((at > 0) & (at <= k), new, tokens)
    return torch.where(at == k + 1, token[:, None], tokens), length + accepted + 1


def slots(length, n):
    return torch.stack([length - 1 + i for i in range(n)], 1)
'''
WITH_LISTS = HEAD + '''
    texts = [row[:n] + drafted[1:1 + k] + [last] for row, n, drafted, k, last in zip(
        tokens.tolist(), length.tolist(), draft.tolist(), accepted.tolist(), token.tolist())]
    return [text + [-1] * (tokens.shape[1] - len(text)) for text in texts], [len(text) for text in texts]


def slots(length, n):
    return [[one - 1 + i for i in range(n)] for one in length.tolist()]
'''


@pytest.mark.parametrize("source", [WITH_A_LOOP, WITH_A_MASK, WITH_LISTS])
def test_other_right_solutions_pass(told, source):
    """Whatever they leave behind the new length."""
    assert told(19, source).failure is None


def test_the_answer_is_the_librarys():
    """one_round writes as many tokens, and a cache has these slots next."""
    exec(EXERCISE.answer, found := {})
    for texts, drafts, accepted, token in small_cases():
        tokens, length = found["commit"](*padded(texts), *map(torch.tensor, (drafts, accepted, token)))
        text, accepted = Text(texts, 8, 999), torch.tensor(accepted)
        written = torch.tensor([[*draft[1:], 0] for draft in drafts])
        text.commit(written.scatter_(1, accepted[:, None], torch.tensor(token)[:, None]), accepted + 1)
        assert text.ids() == [row[:n] for row, n in zip(tokens.tolist(), length.tolist())]
        cache = Cache(len(texts), 1, 1, torch.zeros(2, 32, 1))
        cache.length = text.length - 1
        assert torch.equal(cache.next_slots(3), found["slots"](length, 3))


def test_a_mistake_that_nobody_knows_is_shown_with_its_texts(told):
    """The token of another text."""
    result = told(19, EXERCISE.answer.replace("token[:, None]", "token.flip(0)[:, None]"))
    part, said = result.failure
    assert part == "worked number" and not result.named and "right are [[5, 6, 1, 2, 11], [7, 8, 9, 12]]" in said
    assert "text 0, token 4" in said and "not a mistake known here" in said


def test_lockstep_is_named_with_the_line(told):
    first = "    written = torch.cat"
    result = told(19, EXERCISE.answer.replace(first, "    accepted = accepted.min().expand_as(accepted)\n" + first))
    assert result.named == ["lockstep-with-its-own-token"] and "drawn for another place" in result.failure[1]
