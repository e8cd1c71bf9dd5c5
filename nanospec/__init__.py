"""nanospec: speculative decoding from scratch.

A small model drafts, a big model verifies, and the text is distributed exactly as if the big one
had written it alone.

READING ORDER
    idea        one round for one text, in eleven lines
    generate    plain decoding: one token per call of the model. Take on trust what it imports:
                each name is explained by a file below
    dice        all chance: one decision, one uniform
    probs       logits -> probabilities; the residual distribution
    text        the committed tokens of B texts
    cache       the KV cache: write by slot, roll back
    draft       what a drafter hands over and a rule verifies
    reader      what runs a draft model
    speculate   the idea: draft, verify, commit, repeat
    attention   what a call of the model tells its layers
    model       the GPT
    proof/walk  how we know: every outcome of every decision, tried by the code that ships
errors says what is refused. It and the first eleven are the core, and import torch and one another.
The folders beside the core, its rooms, add to it; `methods/index.py` has all methods by name.

SHAPES, one alphabet everywhere
    B texts (rows of a batch), T tokens in this call, n nodes of a draft, S cache slots,
    V vocabulary, C channels, H heads, H_kv heads of keys and values, D head size

GLOSSARY: our word, what it means, and in brackets what papers call it
    target                  the big model, whose text we want [target model, verifier, M_p]
    draft model             the small model, which is fast and less good [approximation model, M_q,
                            drafter, SSM]
    hidden states           what the target's layers pass on for a token; some draft models read
                            them [features]
    reader                  what runs a draft model and keeps what it has read of a text
    distribution            a probability for every token; together they are 1
    p_target, q_draft       the target's distribution, and the one that a draft token was drawn from
                            [Leviathan et al.: p and q; Chen et al.: q and p, the other way round]
    sampling                the settings by which logits become a distribution: temperature, top-k,
                            top-p, min-p; to apply them is to warp the logits [warping,
                            logits processors]
    draft token             a token that was proposed and is not verified yet [guess, candidate,
                            speculated token]
    draft                   all draft tokens of one round, for B texts: a chain, where each follows
                            the one before it, or a tree, where several may follow one [draft tree,
                            token tree]
    drafter                 what makes drafts, with a draft model or by a search in the text
    rule                    what decides which draft tokens are accepted [verification algorithm]
    node                    a place in a draft; node 0 is the last token of the text, node i the
                            i-th draft token
    path                    the accepted nodes, from node 0 down; in a chain, the first few. A Round
                            leaves out node 0. In a walk: one series of outcomes
    row                     a text's place in a batch
    accepted, rejected      a draft token becomes part of the text, or does not
    residual distribution   what the token in place of a rejected one is drawn from: max(0, p_target
                            - q_draft), made to add up to 1 [adjusted distribution, (p - q)+,
                            norm(max(0, p - q))]
    bonus token             the token after the last draft token, if all were accepted; the target
                            has scored that place too, so it costs no call
    round                   draft, verify in one call of the target, commit [iteration, step, run]
    slot                    a place in the cache, where the keys and values of one token are kept
                            [KV cache position]
    KV length               how many slots of the cache a call reads
    lag                     how many trailing tokens of a text a draft model has not read yet
    dice                    all random numbers come from here; one decision takes one uniform
    coin, threshold         a decision with two outcomes, made by dice.flip: the coin falls on a
                            uniform u, and says yes below its threshold, the probability of yes
    walk                    try every outcome of every decision, and add up the probabilities [exact
                            enumeration]
    mutation tests          bugs are planted here, one by one, many of them such as other projects
                            had; a check must catch each
    gamma                   draft tokens in a round, the draft length [gamma; Chen et al.: K]
    beta                    how often a draft token is accepted after one prefix: sum min(p_target,
                            q_draft)
    alpha                   the mean of beta over many prefixes; accepted of judged draft tokens
    acceptance rate         what engines call accepted of all draft tokens, also of those after a
                            rejection, which nobody judged: it falls as drafts get longer. By place:
                            the share of all drafts whose i-th token was accepted
    acceptance length       tokens per target call, the bonus token or replacement included [tau,
                            mean acceptance length, accept len; some count without it]
    c                       time of a call of the draft model / time of a call of the target on one
                            token
    v(m)                    time of a call of the target on m tokens / on one token

A function that bears its file's name is imported from the file:
`from nanospec.speculate import speculate`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nanospec.cache import Cache
    from nanospec.dice import Dice
    from nanospec.draft import Draft
    from nanospec.errors import NanospecError, RequestError
    from nanospec.model import GPT, Config
    from nanospec.probs import Sampling
    from nanospec.speculate import ModelDrafter, Round

__all__ = ["Cache", "Config", "Dice", "Draft", "GPT", "ModelDrafter", "NanospecError",
           "RequestError", "Round", "Sampling"]
# A name's file is read when the name is first asked for: a command that torch has not yet been
# imported for can refuse, and be interrupted, at once.
_FILES = {"Cache": "cache", "Config": "model", "Dice": "dice", "Draft": "draft", "GPT": "model",
          "ModelDrafter": "speculate", "NanospecError": "errors", "RequestError": "errors",
          "Round": "speculate", "Sampling": "probs"}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module 'nanospec' has no attribute {name!r}")
    return getattr(import_module(f"nanospec.{_FILES[name]}"), name)
