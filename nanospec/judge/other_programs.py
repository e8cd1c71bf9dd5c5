"""Samplers of other people, as the judge takes them: transformers' `generate`, and any function.

What their text is compared with comes from their target's own logits: a plain call on the whole
text, without a cache.
Left out: an end of text, the length limit, penalties, several texts at once.
"""

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from nanospec.cache import Cache
from nanospec.dice import Dice
from nanospec.errors import PairError, RequestError, one_line
from nanospec.files.extra import extra
from nanospec.model import Config
from nanospec.judge.sampler import Sampler
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import WalkingDice

# What a walked distribution may be off, in total variation, where they compute in single precision.
SINGLE = 1e-5
# For a walk: a path of theirs is a call of generate, and knows more than any number of samples.
SECONDS = 120.0


class Recomputed(TableModel):
    """Somebody's model where a GPT of ours stands: a table that is filled when it is asked.

    logits_of: tokens (B, T) -> logits (B, T, V), or something that has such `logits`. Our cache
    holds the tokens alone, so every new context is read from its beginning. Nothing of a cache of
    theirs is in the truth.
    """

    def __init__(self, logits_of: Callable, vocab_size: int, context: int = 2 ** 20, device="cpu"):
        self.config = Config(vocab_size, context=context, layers=1, channels=2, heads=1,
                             kv_heads=1, hidden=1)
        self.logits_of, self.device, self.dtype = logits_of, torch.device(device), torch.float64
        self.rows: dict[tuple, int] = {}
        self.logits = torch.empty(1, vocab_size, dtype=self.dtype)

    @torch.inference_mode()
    def __call__(self, tokens: Tensor, cache: Cache | None = None, *more, **options):
        if cache is not None:
            return super().__call__(tokens, cache, *more, **options)
        answer = self.logits_of(tokens)
        return getattr(answer, "logits", answer).to(self.dtype)

    def _hash(self, context: list[int]) -> int:
        """The row of the table: written when it is first asked for."""
        row = self.rows.get(tuple(context))
        if row is None:
            row, logits = len(self.rows), self(torch.tensor([context], device=self.device))[0, -1]
            if row == len(self.logits):             # twice as large: each is copied once on average
                self.logits = torch.cat([self.logits, torch.empty_like(self.logits)])
            self.logits[row] = logits.cpu()
            self.rows[tuple(context)] = row
        return row


# transformers

class LateUniform:
    """A uniform number that is drawn only when it is compared: `u <= prob` is a coin of the dice.
    (A walk knows no number, only outcomes; so it cannot see whether < or <= stands there.)"""

    def __init__(self, dice):
        self.dice = dice

    def __le__(self, prob: Tensor) -> Tensor:
        return self.dice.flip(prob)

    __lt__ = __le__


@contextmanager
def decided_by(dice: Dice | WalkingDice) -> Iterator[None]:
    """Within it, torch's chance comes from the dice: walked, or from their seed."""
    if not isinstance(dice, WalkingDice):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(dice.generators[0].initial_seed())
            yield
        return

    def picked(weights: Tensor, num_samples: int) -> Tensor:
        assert num_samples == 1, "each row is one decision"
        return dice.pick(weights)[:, None]

    with patch.object(torch, "multinomial", picked), \
            patch.object(torch, "rand_like", lambda like: LateUniform(dice)):
        yield


def of_transformers(target, ids: Sequence[int], new: int, assistant=None, gamma: int = 2,
                    lookup: int | None = None, temperature: float = 1.0, top_k: int | None = None,
                    top_p: float | None = None, min_p: float | None = None) -> Sampler:
    """transformers' `generate` on two of its models: plain; with an assistant model that drafts
    `gamma` tokens a round; or with `lookup` tokens a round copied from the text (its
    prompt_lookup_num_tokens).

    Walked, every draw of torch.multinomial and every coin is a decision of the dice. With real dice
    it draws as it always does, after torch.manual_seed(seed). It may write a round more than `new`
    tokens, which are then cut: no round drafts less because the end is near, and a bug has the
    distribution that it has in the zoo. (At temperature 1: transformers 5.23 applies temperature,
    top-k and top-p to the assistant's logits twice.)
    """
    from transformers import GenerationConfig, StoppingCriteriaList
    target, assistant = copy(target), copy(assistant)  # what they were configured with stays theirs
    target.generation_config = GenerationConfig()
    if assistant is not None:
        assistant.generation_config = GenerationConfig(num_assistant_tokens=gamma,
                                                       assistant_confidence_threshold=0.0,
                                                       num_assistant_tokens_schedule="constant")
    how = ({"temperature": temperature, "top_k": top_k or 0, "top_p": top_p or 1.0, "min_p": min_p}
           if temperature else {})
    prompt = torch.tensor([ids], device=target.device)
    room = gamma if assistant is not None else lookup or 0
    enough = StoppingCriteriaList([lambda text, scores, **more: torch.full(
        (len(text),), text.shape[1] >= len(ids) + new, device=text.device)])

    @torch.inference_mode()
    def sampler(dice):
        settings = GenerationConfig(do_sample=temperature > 0, max_new_tokens=new + room,
                                    pad_token_id=0, prompt_lookup_num_tokens=lookup, **how)
        with decided_by(dice):
            text = target.generate(prompt, attention_mask=torch.ones_like(prompt),
                                   generation_config=settings,
                                   assistant_model=assistant, stopping_criteria=enough)
        return text[0, len(ids):len(ids) + new]
    return sampler


def load_with_transformers(folder: Path):
    """The model in `folder`, in single precision; RequestError or PairError."""
    transformers = extra("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if not (folder / "config.json").is_file():
        raise PairError(f"{folder} has no config.json: name a folder with a model that "
                        "transformers can read")
    try:
        kind = transformers.AutoModelForCausalLM
        return kind.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    except Exception as error:          # each architecture has its own
        raise PairError(f"transformers cannot read {folder}: {one_line(error)}") from error


def special_tokens(model) -> list[int]:
    """Those that begin or end a text, or fill it up, as its config and generation_config name them.
    """
    named = [getattr(config, f"{name}_token_id", None)
             for config in (model.config, getattr(model, "generation_config", None))
             for name in ("bos", "eos", "pad")]
    return sorted({token for one in named for token in (one if isinstance(one, list) else [one])
                   if isinstance(token, int)})


def recomputed(model) -> Recomputed:
    """A model of transformers as the judge's target, or draft model."""
    config = model.config
    return Recomputed(lambda tokens: model(tokens, use_cache=False), config.vocab_size,
                      getattr(config, "max_position_embeddings", 2 ** 20), model.device)


# Functions

def model_of(model: Any, ids: Sequence[int]) -> Any:
    """A target or draft model: {tuple of tokens: probability}, a model of ours, or anything that
    takes tokens (1, T) and returns logits (1, T, V), or an object that has `logits`.
    """
    if isinstance(model, Mapping) or hasattr(model, "new_cache"):
        return model
    answer = model(torch.tensor([list(ids)]))
    shape = tuple(getattr(answer, "logits", answer).shape)
    if len(shape) != 3 or shape[:2] != (1, len(ids)):
        raise RequestError("a target returns logits (1, T, V) for tokens (1, T), this one for "
                           f"{len(ids)} tokens {shape}")
    return Recomputed(model, shape[2])


def error_in_a_line(error: BaseException) -> str:
    """Somebody else's error in one line, and where it rose."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if not frame.filename.startswith("<")]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {one_line(error)}{where}"
