"""nanospec: speculative decoding from scratch.

A small model drafts, a big model verifies, and the text is distributed exactly as if the big one had written it alone.
Read dice, probs, text, generate, draft, speculate, in this order; then proof/walk.py for how we know.

SHAPES, one alphabet everywhere
    B texts (rows of a batch), T tokens in this call, n rows of a draft, S cache slots, V vocabulary, C channels,
    H heads, H_kv heads of keys and values, D head size

GLOSSARY: our word, what it means, and in brackets what papers call it
    target                  the big model, whose text we want [target model, verifier, M_p]
    draft model             the small model, which is fast and less good [approximation model, M_q, drafter, SSM]
    features                what the target's layers put out for a token; some draft models learn from them [hidden
                            states]
    reader                  what runs a draft model, and keeps what it has read of a text; see draft_models/
    distribution            a probability for every token; together they are 1
    p_target, q_draft       the target's distribution, and the one that a draft token was drawn from [Leviathan et al.:
                            p and q; Chen et al.: q and p, the other way round]
    sampling                how logits become a distribution: temperature, top-k, top-p [warping, logits processors]
    draft token             a token that was proposed; nobody has verified it yet [guess, candidate, speculated token]
    draft                   all draft tokens of one round, for B texts: a chain, where each stands behind the one before
                            it, or a tree, where several may stand behind one [draft tree, token tree]
    drafter                 who makes drafts: a draft model, or a search in the text; see drafters/
    rule                    who decides which draft tokens are accepted; see rules/ [verification algorithm]
    row                     a place in a draft; row 0 is the last token of the text, row i the i-th draft token [node]
    path                    the accepted rows, from row 0 down; in a chain, the first few
    accepted, rejected      a draft token becomes part of the text, or does not
    residual distribution   what is left for the token in place of a rejected one: max(0, p_target - q_draft), made to
                            add up to 1 [adjusted distribution, (p - q)+, norm(max(0, p - q))]
    bonus token             the token behind the last draft token, if all were accepted; the target has scored that
                            place too, so it costs no call
    round                   draft, verify in one call of the target, commit [iteration, step, run]
    slot                    a place in the cache, where the keys and values of one token are kept [KV cache position]
    dice                    all random numbers come from here; one decision takes one of them
    coin                    a decision with two outcomes, made by dice.flip: is this draft token accepted?
    walk                    try every outcome of every decision, and add up the probabilities [exact enumeration]
    zoo                     bugs that other projects had; each is planted here, and a check must catch it [mutants]
    gamma                   draft tokens in a round [gamma; Chen et al.: K]
    beta                    how often a draft token is accepted behind one text: sum min(p_target, q_draft)
    alpha                   the mean of beta over many texts [acceptance rate]
    c                       time of a call of the draft model / time of a call of the target on one token
    v(m)                    time of a call of the target on m tokens / on one token

A function that bears its file's name is imported from the file: `from nanospec.speculate import speculate`.
"""

from nanospec.cache import Cache
from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.errors import NanospecError, RequestError
from nanospec.files.checkpoint import Pair, load_pair
from nanospec.files.tokenizer import Tokenizer
from nanospec.model import GPT, Config
from nanospec.probs import Sampling
from nanospec.speculate import ModelDrafter, Round

__all__ = ["Cache", "Config", "Dice", "Draft", "GPT", "ModelDrafter", "NanospecError", "Pair", "RequestError", "Round",
           "Sampling", "Tokenizer", "load_pair"]
