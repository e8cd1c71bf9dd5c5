"""Exercise 18: which features go with which token. Told by a draft layer that knows the target by heart.

With the right pairs all its draft tokens are accepted. With others fewer are, and the text is as exact.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from lessons.check.answered import wholes
from lessons.check.engine import Exercise, Functions, wrong
from lessons.check.layers import TARGET, Layer, Scripted, features_of
from lessons.check.rounds import coin, count, distribution_of, next_weights
from lessons.check.seen import Failure, Row, Seen, values
from nanospec.proof.walk import target_distribution, walk

IDS = (1, 0)
ROUNDS = (1, 1), (1, 1), (2, 0)         # gamma, and how far off the layer is in any case: in the last it can be right
NEW, DRAFTED = 4, ROUNDS[-1][0]


def proposed(f, layer, text, features, gamma: int) -> list[int]:
    drafted = wholes(f.propose(layer, list(text), features, gamma), "propose")
    if drafted != layer.drafted or len(drafted) != gamma:
        raise Failure(f"propose must call the layer {gamma} times and return its draft tokens, in order; they were "
                      f"{layer.drafted}, it returned {drafted}")
    return drafted


def kept(f, *round_) -> list[int]:
    return wholes(f.keep(*round_), "keep")


def contract(f) -> None:
    proposed(f, Scripted(), [5, 7, 2], [40, 41], 2)
    kept(f, [40, 41], [42, 43], [45, 46, 47], 1)


def worked(f) -> list[Seen]:
    right = [[(40, 7), (41, 2)], [(40, 7), (41, 2), (42, 6)]]

    def read() -> dict:
        layer = Scripted()
        proposed(f, layer, [5, 7, 2], [40, 41], 2)
        return by_place(layer.reads)
    return [values("propose, tokens [5, 7, 2], features [40, 41], gamma 2: what the layer reads", read,
                   by_place(right)), seen_kept(f, 2, 1)]


def by_place(reads: list[list[tuple[int, int]]]) -> dict[str, int]:
    return {f"call {call}, pair {place}, {what}": number for call, pairs in enumerate(reads, 1)
            for place, pair in enumerate(pairs, 1) for what, number in zip(("features", "token"), pair)}


def seen_kept(f, gamma: int, accepted: int) -> Seen:
    features, predicted, verified = [40, 41], list(range(42, 42 + gamma)), list(range(45, 46 + gamma))
    right = features + verified[:accepted + 1]

    def numbered(kept: list[int]) -> dict:
        return {f"place {i}": number for i, number in enumerate(kept)}
    return values(f"keep, features {features}, predicted {predicted}, verified {verified}, accepted {accepted}: right "
                  f"is {right}", lambda: numbered(kept(f, features, predicted, verified, accepted)), numbered(right))


def play(f, dice) -> tuple[tuple[int, ...], int]:
    """Three rounds: the first NEW tokens of their text, and how many draft tokens the last round accepted."""
    text, features = IDS, list(features_of(IDS[:-1]))
    for gamma, off in ROUNDS:
        layer = Layer(text, off, dice)
        drafted = proposed(f, layer, text, features, gamma)
        p_target = [distribution_of(TARGET, (*text, *drafted[:i])) for i in range(gamma + 1)]
        accepted = count([dice.flip(coin(x, p, q)) for x, p, q in zip(drafted, p_target, layer.q_draft)])
        verified = list(features_of((*text, *drafted))[len(text) - 1:])
        features = kept(f, features, layer.predicted, verified, accepted)
        text = (*text, *drafted[:accepted], dice.pick(next_weights(accepted, p_target, layer.q_draft)))
    while len(text) < len(IDS) + NEW:
        text = (*text, dice.pick(distribution_of(TARGET, text)))
    return text[len(IDS):len(IDS) + NEW], accepted


@lru_cache(maxsize=1)
def walked(propose: Callable, keep: Callable) -> tuple[dict, int]:
    """Three rounds in every way the dice can fall, for the two parts that follow."""
    return walk(lambda dice: play(Functions(propose=propose, keep=keep), Row(dice)))


def exact(f) -> list[Seen]:
    def texts() -> dict:
        found: dict = {}
        for (tokens, _), weight in walked(f.propose, f.keep)[0].items():
            found[tokens] = found.get(tokens, 0.0) + weight
        return found
    seen = values(f"three rounds: the distribution of {NEW} tokens", texts, target_distribution(TARGET, IDS, NEW))
    return [seen if seen.error else replace(seen, paths=walked(f.propose, f.keep)[1])]


def accepted_by(propose: Callable, keep: Callable) -> float:
    return sum(weight * accepted for (_, accepted), weight in walked(propose, keep)[0].items())


def pace(f) -> list[Seen]:
    return [values(f"the third round: how many of the layer's {DRAFTED} draft tokens are accepted",
                   lambda: {"draft tokens accepted": accepted_by(f.propose, f.keep)},
                   {"draft tokens accepted": DRAFTED})]


def every_count(f) -> list[Seen]:
    return [seen_kept(f, gamma, accepted) for gamma in (1, 3) for accepted in range(gamma + 1)]


def number_to_reach(f) -> str:
    yours, others = accepted_by(f.propose, f.keep), accepted_by(OWN_FEATURES["propose"], f.keep)
    return (f"{yours:.2f} of {DRAFTED} draft tokens accepted; to reach: {DRAFTED:.2f}. With each token beside its own "
            f"features: {others:.2f}, and the same distribution of the text")


def proposing(pairs: Callable = lambda tokens, features: zip(features, tokens[1:]),
              then: Callable = lambda pairs, features, predicted, token: [*pairs, (predicted, token)]) -> dict:
    """propose with other pairs of the text, or other pairs behind a draft token."""
    def propose(layer, tokens, features, gamma):
        read, drafted = list(pairs(tokens, features)), []
        for _ in range(gamma):
            predicted, token = layer(read)
            read = then(read, features, predicted, token)
            drafted.append(token)
        return drafted
    return {"propose": propose}


OWN_FEATURES = proposing(lambda tokens, features: zip(features, tokens))

EXERCISE = Exercise(
    "ex18_one_ahead.py", ("propose", "keep"), contract,
    {"worked number": worked, "exact distribution": exact, "every draft token accepted": pace,
     "what is kept": every_count},
    [wrong("own-features", "you pair each token with its own features. The last token has none yet, so the layer never "
           "reads it: take the features of the token before", **OWN_FEATURES),
     wrong("own-features", "you leave out x_0 and pair the others with their own features; the last one has none yet. "
           "Take those of the token before: f_0 goes with x_1",
           **proposing(lambda tokens, features: zip(features[1:], tokens[1:]))),
     wrong("features-two-before", "your features are one too old: x_2 goes with f_1, not with f_0",
           **proposing(lambda tokens, features: zip(features, tokens[2:]))),
     wrong("first-token-read", "you hand in x_0 as well: there are no features before it, leave it out",
           **proposing(lambda tokens, features: zip([0, *features], tokens))),
     wrong("last-token-unread", "the layer does not read the last token of the text, and drafts for its place again",
           **proposing(lambda tokens, features: zip(features, tokens[1:-1]))),
     wrong("last-pair-only", "you hand in the last pair alone; the layer reads all of them",
           **proposing(lambda tokens, features: [(features[-1], tokens[-1])])),
     wrong("new-pair-only", "in later calls you hand in the new pair alone; layer takes all pairs, every time",
           **proposing(then=lambda pairs, features, predicted, token: [(predicted, token)])),
     wrong("draft-tokens-unread", "every call gets the same pairs: the layer must read what it has drafted",
           **proposing(then=lambda pairs, *_: pairs)),
     wrong("predicted-with-its-own-token", "what the layer predicts are the features of the last token it has read; "
           "they go with the draft token, which comes behind that one",
           **proposing(then=lambda pairs, features, predicted, token: [*pairs, (predicted, pairs[-1][-1])])),
     wrong("last-features-again", "you give every draft token the target's last features; what goes with it was "
           "predicted by the layer a moment ago",
           **proposing(then=lambda pairs, features, predicted, token: [*pairs, (features[-1], token)])),
     wrong("predicted-kept", "you keep what the layer predicted; the target has read these tokens since, so take its "
           "own features", keep=lambda features, predicted, verified, accepted: features + predicted[:accepted + 1]),
     wrong("predicted-kept", "for the accepted draft tokens you keep what the layer predicted; the target has read "
           "them since, so take its own features", keep=lambda features, predicted, verified, accepted:
           features + predicted[:accepted] + verified[accepted:accepted + 1]),
     wrong("rejected-kept", "you keep the features of rejected draft tokens, too: they are no text",
           keep=lambda features, predicted, verified, accepted: features + verified),
     wrong("row-0-forgotten", "row 0 of the target's call is x_n, the last token of the text before: now its features "
           "are there, and are missing in yours",
           keep=lambda features, predicted, verified, accepted: features + verified[1:accepted + 1]),
     wrong("last-accepted-forgotten", "you keep one too few: x_n and the accepted draft tokens are accepted + 1 rows",
           keep=lambda features, predicted, verified, accepted: features + verified[:accepted]),
     wrong("one-too-many", "you keep one too many: nobody has read the new token; the row there is of a rejected one",
           keep=lambda features, predicted, verified, accepted: features + verified[:accepted + 2]),
     wrong("text-before-forgotten", "you keep this round alone; the features of the text before it are needed as well",
           keep=lambda features, predicted, verified, accepted: verified[:accepted + 1])],
    ("Write the tokens in a row, and under each one its own features. Now move the lower row one place to the right.",
     "How many pairs has a text of three tokens? In keep: which tokens has the target read, and which are text?",
     "pairs = list(zip(features, tokens[1:])); behind each call pairs.append((predicted, token)). And features + "
     "verified[:accepted + 1]"),
    [("nanospec.draft_models.learned", "before_tokens", "", ""),
     ("nanospec.draft_models.learned", "FeatureReader.commit", "path, count", "self.kept[")],
    {"number to reach": number_to_reach}, slow_is_right=True)
