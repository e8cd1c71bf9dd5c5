"""What people do wrong in exercise 19, a ragged commit."""

from collections.abc import Callable

import torch
from torch import Tensor, arange

from lessons.check.engine import wrong


def committing(accepted: Callable = lambda accepted: accepted, place: Callable = lambda length: length,
               at: Callable = lambda accepted, gamma: accepted,
               grown: Callable = lambda length, accepted, gamma: length + accepted + 1, again: int = 0,
               room: bool = True) -> dict:
    """commit with others accepted, written to other places, its token at another one, or with another length. again:
    column 0 is written, too.
    """
    def commit(tokens, length, draft, its, token):
        its, gamma = accepted(its), draft.shape[1] - 1
        written = torch.cat([draft[:, 1 - again:], token[:, None]], 1)
        written = written.scatter(1, again + at(its, gamma)[:, None], token[:, None])
        places = place(length)[:, None] + arange(written.shape[1])
        wide = torch.cat([tokens, tokens], 1) if room else tokens                       # some of them write too far
        return wide.scatter(1, places, written)[:, :tokens.shape[1]], grown(length, its, gamma)
    return {"commit": commit}


def at_the_first_length(tokens, length, draft, accepted, token):
    tokens, at = tokens.clone(), int(length[0])
    for b, k in enumerate(accepted.tolist()):
        tokens[b, at:at + k + 1] = torch.cat([draft[b, 1:k + 1], token[b:b + 1]])
    return tokens, length + accepted + 1


def token_too_early(tokens, length, draft, accepted, token):
    tokens = tokens.scatter(1, length[:, None] + arange(draft.shape[1] - 1), draft[:, 1:])
    return tokens.scatter(1, (length + accepted - 1)[:, None], token[:, None]), length + accepted


def longest(length: Tensor) -> Tensor:
    return length.max().expand_as(length)


WRONGS = [
    wrong("lockstep-with-its-own-token", "you cut every text to the fewest accepted, and append its own token; that "
          "one was drawn for another place", **committing(lambda accepted: accepted.min().expand_as(accepted))),
    wrong("longest-for-all", "you commit as many draft tokens of each text as the best text has accepted: some of "
          "them were rejected", **committing(longest)),
    wrong("first-text-for-all", "you use what text 0 has accepted for all texts",
          **committing(lambda accepted: accepted[:1].expand_as(accepted))),
    wrong("one-length-for-all", "you give all texts the length of the longest: nothing follows a shorter text",
          **committing(grown=lambda length, accepted, gamma: longest(length + accepted + 1))),
    wrong("after-the-longest", "you write after the longest text of the batch, not after each one's own end",
          **committing(place=longest)),
    wrong("token-after-the-whole-draft", "you put the token after the whole draft; its place is after the accepted "
          "draft tokens, over the first that was rejected", **committing(at=lambda k, gamma: k * 0 + gamma)),
    wrong("rejected-committed", "you commit the whole draft: the rejected draft tokens are no text",
          **committing(at=lambda k, gamma: k * 0 + gamma, grown=lambda length, k, gamma: length + gamma + 1)),
    wrong("last-token-twice", "column 0 of the draft is the last committed token: it is in the text already, and you "
          "write it once more", **committing(grown=lambda length, k, gamma: length + k + 2, again=1)),
    wrong("last-token-twice", "column 0 of the draft is the last committed token: it is in the text already. You "
          "write it once more, and the new length leaves out the new one", **committing(again=1)),
    *(wrong("last-token-taken-for-a-draft-token", "column 0 of the draft is the last committed token, and you count "
            "it "
            "among the draft tokens: the accepted ones are columns 1 to `accepted`",
            **committing(at=lambda k, gamma: k - 1, again=1, room=room)) for room in (True, False)),
    wrong("token-not-counted", "your new length leaves out the replacement or bonus token",
          **committing(grown=lambda length, k, gamma: length + k)),
    wrong("token-too-early", "you write the token over the last accepted draft token: it comes one place later",
          commit=token_too_early),
    wrong("slots-after-the-text", "you begin at slot `length`. The last committed token has not been read, and its "
          "own slot is length - 1", slots=lambda length, n: length[:, None] + arange(n)),
    wrong("first-length-for-all", "you write to all texts where text 0 ends: each has an end of its own",
          **committing(place=lambda length: length[:1].expand_as(length))),
    wrong("first-length-for-all", "you write to all texts where text 0 ends: each has an end of its own",
          commit=at_the_first_length),
    wrong("first-length-for-all", "you write to all texts where text 0 ends, and give all of them its length: each "
          "has an "
          "end of its own", **committing(place=lambda length: length[:1].expand_as(length),
                                         grown=lambda length, accepted, gamma: length[:1] + accepted + 1)),
    wrong("token-at-the-end-of-the-text", "you write the token right after the old text, over the first draft "
          "token: it "
          "comes after the accepted ones", **committing(at=lambda k, gamma: k * 0)),
    wrong("slots-of-text-0", "you give all texts the slots of text 0: each continues where it ends itself",
          slots=lambda length, n: (length[:1, None] - 1 + arange(n)).expand(len(length), n)),
    wrong("slots-of-the-longest", "you give all texts the slots of the longest: the shorter ones get holes",
          slots=lambda length, n: longest(length)[:, None] - 1 + arange(n)),
    wrong("slots-from-0", "you begin at slot 0, where the text's first token has been kept",
          slots=lambda length, n: length[:, None] * 0 + arange(n))]
