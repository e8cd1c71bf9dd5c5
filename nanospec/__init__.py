"""nanospec: speculative decoding from scratch.

A small model guesses, a big model checks, and the text is distributed exactly as if the big one had written it alone.
Read dice, probs, generate, speculate, in this order; then proof/exact.py for how we know.

One alphabet everywhere
    shapes    B rows (requests), T tokens in this call, S cache slots, V vocabulary, C channels, H heads, H_kv heads of
              keys and values, D head size
    letters   gamma drafted tokens a round; alpha expected acceptance, E sum min(p_target, q_draft); beta the same at
              one prefix; c = draft step / target step; v(m) = target call on m tokens / on one
    laws      p_target and q_draft, never p and q: Leviathan et al. and Chen et al. use them the other way round

A function that bears its file's name is imported from the file: `from nanospec.speculate import speculate`.
"""

from nanospec.cache import Cache
from nanospec.files.checkpoint import Pair, load_pair
from nanospec.dice import Dice
from nanospec.errors import NanospecError, RequestError
from nanospec.model import GPT, Config
from nanospec.speculate import ModelDrafter, Round
from nanospec.files.tokenizer import Tokenizer

__all__ = ["Cache", "Config", "Dice", "GPT", "ModelDrafter", "NanospecError", "Pair", "RequestError", "Round",
           "Tokenizer", "load_pair"]
