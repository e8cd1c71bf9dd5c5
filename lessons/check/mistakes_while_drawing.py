"""What people do wrong in exercise 20, a block drawn from left to right."""

from collections.abc import Callable

import torch

from lessons.check.engine import wrong


def drawing_by(combined: Callable = lambda own, table, before, last, k: own + table[before],
               said: Callable | None = None, weigh: Callable = lambda logits: logits.softmax(-1),
               choose: Callable = lambda dice, q: dice.pick(q)) -> dict:
    """draw with other logits, with others reported than drawn from, or another choice."""
    def draw(last, logits, table, dice):
        tokens, q_draft, before = [], [], last
        for k, own in enumerate(logits):
            q = weigh(combined(own, table, before, last, k))
            q_draft.append(q if said is None else weigh(said(own, table, before, last, k)))
            before = choose(dice, q)
            tokens.append(before)
        return tokens, q_draft
    return {"draw": draw}


def alone(own, table, before, last, k):
    return own


NO_TABLE = drawing_by(alone)
ADDED = (lambda sums: sums, lambda sums: sums.clamp(min=0), lambda sums: sums / sums.sum(),     # what people do then
         lambda sums: sums.clamp(min=0) / sums.clamp(min=0).sum(), lambda sums: sums.softmax(-1))


def table_after(last, logits, table, dice):
    """All drawn first, corrected then."""
    tokens = [dice.pick(own.softmax(-1)) for own in logits]
    return tokens, [(own + table[before]).softmax(-1) for own, before in zip(logits, [last, *tokens])]


def own_line(last, logits, table, dice):
    tokens, q_draft = [], []
    for own in logits:
        tokens.append(dice.pick((own + table[last]).softmax(-1)))
        q_draft.append((own + table[tokens[-1]]).softmax(-1))
        last = tokens[-1]
    return tokens, q_draft


def one_hot(last, logits, table, dice):
    tokens, q_draft = drawing_by()["draw"](last, logits, table, dice)
    return tokens, list(torch.eye(logits.shape[1], dtype=logits.dtype)[tokens])


def all_before(last, logits, table, dice):
    tokens, q_draft, added = [], [], table[last]
    for own in logits:
        q_draft.append((own + added).softmax(-1))
        tokens.append(dice.pick(q_draft[-1]))
        added = added + table[tokens[-1]]
    return tokens, q_draft


WRONGS = [
    wrong("block-marginals-reported", "you draw with the table and report q without it: the rule must be told "
          "what each token was really drawn from", **drawing_by(said=alone)),
    wrong("table-after-the-draw", "you draw all places first and add what the table says to what you report: add them "
          "before you draw", draw=table_after),
    wrong("table-forgotten", "you draw every place on its own: the text is exact, and fewer draft tokens are accepted "
          "than the table allows", **NO_TABLE),
    wrong("line-of-the-last-token", "you add the line of the text's last token at every place; take that of the token "
          "drawn just before", **drawing_by(lambda own, table, before, last, k: own + table[last])),
    wrong("first-place-alone", "you leave the first place without its line: the text's last token is in front of it",
          **drawing_by(lambda own, table, before, last, k: own + table[before] if k else own)),
    wrong("table-by-columns", "you add a column: table[a] is what is added after token a",
          **drawing_by(lambda own, table, before, last, k: own + table[:, before])),
    wrong("line-of-its-own-token", "you report each token with its own line of the table, not with that of the "
          "token in front of it", draw=own_line),
    wrong("table-times-weights", "you multiply the probabilities by the table: it is added to logits, so it would be "
          "its exp that multiplies",
          **drawing_by(lambda own, table, before, last, k: (own.softmax(-1) * table[before]))),
    *(wrong("table-added-to-probabilities", "you add the table to probabilities: it is added to the logits, and the "
            "softmax comes after", **drawing_by(weigh=weigh, combined=lambda own, table, before, last, k: (
                own.softmax(-1) + table[before]))) for weigh in ADDED),
    wrong("logits-taken-for-weights", "you hand out exp of the logits without dividing by their sum: q_draft must add "
          "up to 1", **drawing_by(weigh=torch.exp)),
    wrong("reported-for-the-token-alone", "you report a one-hot, or a number for the drawn token alone: q_draft is "
          "the whole distribution that it was drawn from", draw=one_hot),
    wrong("table-twice", "you add the table's line twice", **drawing_by(
        lambda own, table, before, last, k: own + 2 * table[before])),
    wrong("lines-of-all-before", "you add the table's lines of all tokens before: only that of the token in front "
          "counts", draw=all_before),
    wrong("likeliest-token", "you take the likeliest token; it must be drawn, or q_draft is not what it came from",
          **drawing_by(choose=lambda dice, q: int(q.argmax())))]
