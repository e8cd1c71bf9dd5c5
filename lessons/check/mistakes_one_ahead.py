"""What people do wrong in exercise 18: pairs of tokens and hidden states."""

from collections.abc import Callable

from lessons.check.engine import wrong


def proposing(pairs: Callable = lambda tokens, hidden: zip(hidden, tokens[1:]),
              then: Callable = lambda pairs, hidden, predicted, token: [*pairs, (predicted, token)]) -> dict:
    """propose with other pairs of the text, or other pairs after a draft token."""
    def propose(layer, tokens, hidden, gamma):
        read, drafted = list(pairs(tokens, hidden)), []
        for _ in range(gamma):
            predicted, token = layer(read)
            read = then(read, hidden, predicted, token)
            drafted.append(token)
        return drafted
    return {"propose": propose}


def one_call_late(layer, tokens, hidden, gamma):
    read, drafted, before = list(zip(hidden, tokens[1:])), [], hidden[-1]
    for _ in range(gamma):
        predicted, token = layer(read)
        read = [*read, (before, token)]
        before = predicted
        drafted.append(token)
    return drafted


OWN_HIDDEN = proposing(lambda tokens, hidden: zip(hidden, tokens))

WRONGS = [
    wrong("own-hidden", "you pair each token with its own hidden state. The last token has none yet, so the layer "
          "never reads it: take the hidden state of the token before", **OWN_HIDDEN),
    wrong("own-hidden", "you leave out x_0 and pair the others with their own hidden states; the last one has none "
          "yet. Take that of the token before: h_0 goes with x_1",
          **proposing(lambda tokens, hidden: zip(hidden[1:], tokens[1:]))),
    wrong("hidden-two-before", "your hidden states are one too old: x_2 goes with h_1, not with h_0",
          **proposing(lambda tokens, hidden: zip(hidden, tokens[2:]))),
    wrong("first-token-read", "you hand in x_0 as well: there is no hidden state before it, leave it out",
          **proposing(lambda tokens, hidden: zip([0, *hidden], tokens))),
    wrong("last-token-unread", "the layer does not read the last token of the text, and drafts for its place again",
          **proposing(lambda tokens, hidden: zip(hidden, tokens[1:-1]))),
    wrong("last-pair-only", "you hand in the last pair alone; the layer reads all of them",
          **proposing(lambda tokens, hidden: [(hidden[-1], tokens[-1])])),
    wrong("new-pair-only", "in later calls you hand in the new pair alone; layer takes all pairs, every time",
          **proposing(then=lambda pairs, hidden, predicted, token: [(predicted, token)])),
    wrong("draft-tokens-unread", "every call gets the same pairs: the layer must read what it has drafted",
          **proposing(then=lambda pairs, *_: pairs)),
    wrong("predicted-with-its-own-token", "what the layer predicts is the hidden state of the last token that it "
          "has read; it goes with the draft token, which comes after that one",
          **proposing(then=lambda pairs, hidden, predicted, token: [*pairs, (predicted, pairs[-1][-1])])),
    wrong("last-hidden-again", "you give every draft token the target's last hidden state; what goes with it was "
          "predicted by the layer a moment ago",
          **proposing(then=lambda pairs, hidden, predicted, token: [*pairs, (hidden[-1], token)])),
    wrong("prediction-one-call-late", "you give a draft token what the layer predicted a call earlier, and the "
          "first one "
          "the target's last hidden state; what goes with it was predicted in the same call", propose=one_call_late),
    wrong("pair-turned-round", "your pairs are turned round: the hidden state is first, then the token",
          **proposing(lambda tokens, hidden: zip(tokens[1:], hidden),
                      lambda pairs, hidden, predicted, token: [*pairs, (token, predicted)])),
    wrong("text-turned-round", "the pairs of the text are turned round: the hidden state is first, then the token",
          **proposing(lambda tokens, hidden: zip(tokens[1:], hidden))),
    wrong("predicted-kept", "you keep what the layer predicted; the target has read these tokens since, so take its "
          "own hidden states", keep=lambda hidden, predicted, verified, accepted: hidden + predicted[:accepted + 1]),
    wrong("predicted-kept", "for the accepted draft tokens you keep what the layer predicted; the target has read "
          "them since, so take its own hidden states", keep=lambda hidden, predicted, verified, accepted:
          hidden + predicted[:accepted] + verified[accepted:accepted + 1]),
    wrong("rejected-kept", "you keep the hidden states of rejected draft tokens, too: they are no text",
          keep=lambda hidden, predicted, verified, accepted: hidden + verified),
    wrong("node-0-forgotten", "node 0 of the target's call is x_n, the last token of the text before: now its hidden "
          "state is there, and it is missing in yours",
          keep=lambda hidden, predicted, verified, accepted: hidden + verified[1:accepted + 1]),
    wrong("last-accepted-forgotten", "you keep one too few: x_n and the accepted draft tokens are accepted + 1",
          keep=lambda hidden, predicted, verified, accepted: hidden + verified[:accepted]),
    wrong("one-too-many", "you keep one too many: the new token has not been read; that is the state of a rejected one",
          keep=lambda hidden, predicted, verified, accepted: hidden + verified[:accepted + 2]),
    wrong("text-before-forgotten", "you keep this round alone; those of the text before it are needed, too",
          keep=lambda hidden, predicted, verified, accepted: verified[:accepted + 1])]
