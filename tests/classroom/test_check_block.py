"""Exercise 20: other right solutions pass, and what is no solution is told in a sentence."""

import pytest


HEAD = "import torch\n\n\ndef draw(last, logits, table, dice):\n"
BY_WEIGHTS = HEAD + '''
    tokens, said = [last], []
    for k in range(len(logits)):
        weights = logits[k].exp() * table[tokens[-1]].exp()
        said += [weights / weights.sum()]
        tokens += [dice.pick(weights)]
    return tuple(tokens[1:]), torch.stack(said)
'''
WITH_LISTS = HEAD + '''
    if not len(logits):
        return [], []
    q = (logits[0] + table[last]).softmax(0)
    x = dice.pick(q)
    tokens, said = draw(x, logits[1:], table, dice)
    return [x, *tokens], [q.tolist(), *said]
'''


@pytest.mark.parametrize("source", [BY_WEIGHTS, WITH_LISTS])
def test_other_right_solutions_pass(told, source):
    assert told(20, source).failure is None


@pytest.mark.parametrize("body, said", [
    ("return [0]", "two things, tokens and q_draft"), ("return 0, 1", "one for each"),
    ("return [0], [logits[0].softmax(0)]", "one for each"),
    ("return [9] * len(logits), [own.softmax(0) for own in logits]", "a token, an int in 0.."),
    ("return [0] * len(logits), [own[:1] for own in logits]", "must return a tensor")])
def test_what_is_no_block_is_told(told, body, said):
    assert said in str(told(20, HEAD + f"    {body}\n").failure)
