"""What people do wrong in exercise 22: drafts and verdicts of draws with the noise of a place."""

from collections.abc import Callable


from lessons.check.engine import wrong
from lessons.coupled import draw


def proposing(place: Callable = lambda text, i: len(text) + i, draws: Callable = draw,
              sees: Callable = lambda text, drafted: [*text, *drafted]) -> Callable:
    """propose with the noise of another place, another way to draw, or another text before the draft token."""
    def propose(text, draft_model, gamma, noise):
        drafted = []
        for i in range(gamma):
            drafted.append(draws(draft_model(sees(text, drafted)), noise(place(text, i))))
        return drafted
    return propose


def judging(place: Callable = lambda text, i, drafted: len(text) + i, draws: Callable = draw,
            ends: Callable = lambda written, drafted, own: [*written, own], at: Callable = lambda i, gamma: i,
            goes_on: bool = False, bonus: bool = True, last: Callable = draw) -> Callable:
    """judge with another noise, draw, place of p_target, end at the first mismatch, or last token."""
    def judge(text, drafted, p_target, noise):
        written = []
        for i, x in enumerate(drafted):
            own = draws(p_target[at(i, len(drafted))], noise(place(text, i, drafted)))
            if own != x and not goes_on:
                return ends(written, drafted, own)
            written.append(own)
        i = len(drafted)
        return [*written, last(p_target[i], noise(place(text, i, drafted)))] if bonus else written
    return judge


def both(place: Callable = lambda text, i: len(text) + i, draws: Callable = draw) -> dict[str, Callable]:
    return {"propose": proposing(place, draws),
            "judge": judging(lambda text, i, drafted: place(text, i), draws, last=draws)}


def greedy(p, g):
    return int(p.argmax())


def added(p, g):
    return int((p + g).argmax())


def taken_away(p, g):
    return int((p.log() - g).argmax())


def times(p, g):
    return int((p * g).argmax())


def with_epsilon(p, g):
    return int((p + 1e-10).log().add(g).argmax())


def least(p, g):
    return int((p.log() + g).argmin())


def accept_all(text, drafted, p_target, noise):
    return [*drafted, draw(p_target[-1], noise(len(text) + len(drafted)))]


def first_alone(text, drafted, p_target, noise):
    return [draw(p_target[0], noise(len(text)))]


def any_match(text, drafted, p_target, noise):
    """A later draft token that fits is accepted after one that does not."""
    own = [draw(p, noise(len(text) + i)) for i, p in enumerate(p_target)]
    same = [a == b for a, b in zip(own, drafted)]
    end = len(drafted) - [*same[::-1], True].index(True)
    return [*drafted[:end], own[end]]


WRONGS = [
    *(wrong("place-of-the-round", "you count places from the beginning of the round: noise belongs to a place of the "
            "text, len(text) + i, or a text depends on how its rounds happened to fall", **of)
      for of in (both(lambda text, i: i), {"judge": both(lambda text, i: i)["judge"]})),
    wrong("draft-counts-from-the-round", "the draft model's places are counted from the beginning of the round, and "
          "the target's from that of the text: the two then draw with different noise, and agree only by luck",
          propose=proposing(lambda text, i: i)),
    *(wrong("one-place-off", "your noise is that of the place beside it: the token after the text stands at place "
            "len(text)", **both(lambda text, i, off=off: len(text) + off + i)) for off in (-1, 1)),
    *(wrong("target-one-place-off", "the target draws with the noise of the place beside it: the token after the text "
            "stands at place len(text)", judge=judging(lambda text, i, drafted, off=off: len(text) + off + i))
      for off in (-1, 1)),
    *(wrong("draft-one-place-off", "the draft model draws with the noise of the place beside it, and then agrees with "
            "the target only by luck: the first draft token stands at place len(text)",
            propose=proposing(lambda text, i, off=off: len(text) + off + i)) for off in (-1, 1)),
    *(wrong("one-noise-for-all", "you draw all tokens of the round with the noise of its first place: each place has "
            "noise of its own", **of) for of in (
        both(lambda text, i: len(text)), {"judge": judging(lambda text, i, drafted: len(text))})),
    wrong("draft-with-one-noise", "all draft tokens are drawn with the noise of the first place: each place has noise "
          "of its own", propose=proposing(lambda text, i: len(text))),
    wrong("draft-greedy", "you draft the draft model's likeliest token: the target draws, so the draft must be drawn "
          "too, with the same noise", propose=proposing(draws=greedy)),
    wrong("target-greedy", "you compare with the target's likeliest token: that is the text of temperature 0; draw "
          "with the noise of the place", judge=judging(draws=greedy, last=greedy)),
    wrong("everything-greedy", "you take the likeliest token on both sides: that is the text of temperature 0; draw "
          "with the noise of the place", **both(draws=greedy)),
    *(wrong("noise-added-to-probabilities", "you add the noise to p: it belongs to log p", **of) for of in (
        both(draws=added), {"judge": judging(draws=added, last=added)})),
    *(wrong("noise-taken-away", "you take the noise away from log p: add it", **of) for of in (
        both(draws=taken_away), {"judge": judging(draws=taken_away, last=taken_away)})),
    *(wrong("noise-multiplied", "you multiply p by the noise: it is added, to log p", **of) for of in (
        both(draws=times), {"judge": judging(draws=times, last=times)})),
    wrong("argmin", "you take the least of log p + g: the greatest is the token drawn", **both(draws=least)),
    *(wrong("epsilon-in-the-log", "you add a little number to p before the logarithm: a token of probability 0 may "
            "then be drawn, if rarely; the logarithm of 0 is -inf, which is what it should be", **of) for of in (
        both(draws=with_epsilon), {"judge": judging(draws=with_epsilon, last=with_epsilon)})),
    *(wrong("drafts-other-sum", "the draft model's draw is not argmax of log q + g: it adds the noise to something "
            "else, and agrees with the target less often", propose=proposing(draws=other))
      for other in (added, taken_away, times, least)),
    wrong("accept-everything", "you accept the whole draft: the text is the draft model's", judge=accept_all),
    wrong("mismatch-kept", "at the first mismatch you write the draft token: the target's own token is written there",
          judge=judging(ends=lambda written, drafted, own: [*written, drafted[len(written)]])),
    wrong("mismatch-kept-and-answered", "at the first mismatch you write the draft token and then the target's: the "
          "target's stands in its place",
          judge=judging(ends=lambda written, drafted, own: [*written, drafted[len(written)], own])),
    wrong("goes-on-after-a-mismatch", "after the first mismatch you go on: what p_target has after it belongs to a "
          "text that no longer exists", judge=judging(goes_on=True)),
    wrong("later-match-counts", "you accept up to the last draft token that fits: the first that does not fit ends the "
          "round", judge=any_match),
    wrong("replacement-greedy", "at the first mismatch you write the target's likeliest token: the one that it drew "
          "there is written", judge=lambda text, drafted, p_target, noise: (
              written := judging()(text, drafted, p_target, noise))[:-1] + [
                  int(p_target[len(written) - 1].argmax()) if len(written) <= len(drafted) else written[-1]]),
    wrong("replacement-of-the-last-place", "at the first mismatch you draw from p_target[-1]: that belongs to the "
          "place after the whole draft", judge=lambda text, drafted, p_target, noise: (
              written := judging()(text, drafted, p_target, noise))[:-1] + [
                  draw(p_target[-1], noise(len(text) + len(written) - 1))]),
    wrong("next-place", "you compare a draft token with p_target of the place after it: p_target[i] is that of "
          "drafted[i]", judge=judging(at=lambda i, gamma: i + 1)),
    wrong("bonus-greedy", "the bonus token is the target's likeliest: draw it, with the noise of its place",
          judge=judging(last=greedy)),
    wrong("bonus-with-the-last-noise", "the bonus token is drawn with the noise of the last draft token: it has a "
          "place of its own", judge=judging(lambda text, i, drafted: len(text) + min(i, len(drafted) - 1))),
    wrong("bonus-forgotten", "where the whole draft is accepted the round ends with it: p_target[gamma] gives one "
          "token more, without a call", judge=judging(bonus=False)),
    wrong("draft-ignored", "you write the target's first token and never look further: nothing is gained",
          judge=first_alone),
    wrong("draft-does-not-read-itself", "every draft token is drawn from the distribution after the text: it must read "
          "the draft tokens before it", propose=proposing(sees=lambda text, drafted: [*text])),
    wrong("draft-forgets-the-text", "after the first draft token you show the draft model its own tokens alone: they "
          "follow the text", propose=proposing(sees=lambda text, drafted: [*drafted] or [*text]))]

RIGHT = {"propose": proposing(), "judge": judging()}

