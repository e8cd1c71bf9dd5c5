# %% [markdown]
# # Into the world
#
# **Does it hold for models that others made, and in programs that others wrote?**
#
# Until now everything was ours: the GPT, the file it is kept in, and the loop around it. Many
# public models come in a different form, the Hugging Face folder, which transformers, vLLM and
# SGLang read. This lesson exports our pair and compares what another program makes of it: the
# numbers, the tokens, and the number of calls.
#
# We use *The cache*, the round, and greedy decoding.

# %%
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import figures
from kit import table
from nanospec import ModelDrafter
from nanospec.files import load_pair
from nanospec.files.for_engines import export
from nanospec.files.huggingface import names
from nanospec.generate import generate
from nanospec.speculate import speculate

if not find_spec("transformers"):
    sys.exit("This lesson needs the library transformers: pip install -e '.[hf]'")
from transformers import AutoModelForCausalLM, AutoTokenizer, logging  # noqa: E402

logging.set_verbosity_error()
logging.disable_progress_bar()
torch.set_num_threads(1)
pair = target, draft_model, tokenizer = load_pair()

# %% [markdown]
# ## What is in a folder
#
# `export` writes two folders, target and draft. Each holds the sizes (config.json), the weights
# (model.safetensors), and the tokenizer. All of it is JSON and numbers. Nothing in such a folder
# has to be executed, and our reader executes nothing.
#
# Our GPT is Llama's network, so every weight has a name there. *Guess first:* a layer of ours has 6
# tensors. How many has the same layer in the folder?

# %%
room = TemporaryDirectory()
folder = Path(room.name)
export(pair, folder)
table(["file", "bytes"], [[path.name, f"{path.stat().st_size:,}"]
                          for path in sorted((folder / "target").iterdir())])
layer = {ours: parts for ours, parts in names(target.config) if ours.startswith("blocks.0.")}
table(["ours", "shape", "in the folder"],
      [[ours.removeprefix("blocks.0."), tuple(target.state_dict()[ours].shape),
        ", ".join(name.split(".")[-2] for name in parts)] for ours, parts in layer.items()])
count = sum(len(parts) for parts in layer.values())
print(f"\n{len(layer)} tensors here, {count} there")

# %% [markdown]
# *Answer:* nine. Three matrices of attention are one here, and two of the MLP, which makes fewer
# and larger products. The numbers of a matrix stay in their order. This is only a matter of names,
# and no number changes.
#
# ## The same numbers?
#
# Now transformers opens the folders. *Guess first:* both programs compute in float32. How far apart
# are their logits at most: 0, 1e-5 or 1e-2? Are their greedy tokens the same?

# %%
theirs, assistant = (AutoModelForCausalLM.from_pretrained(folder / name, dtype=torch.float32)
                     for name in ("target", "draft"))
their_tokenizer = AutoTokenizer.from_pretrained(folder / "target")
prompt = 'import os\n\ndef walk(folder, suffix=None):\n    """'
ids = tokenizer.begin + tokenizer.encode(prompt)
same_ids = their_tokenizer(prompt).input_ids == ids
x = torch.tensor([ids])
with torch.inference_mode():
    off = (target(x) - theirs(x).logits).abs().max().item()
    size = target(x).abs().max().item()
NEW = 96
plain = list(generate(target, ids, NEW, temperature=0))
fixed = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
written = theirs.generate(x, **fixed)[0, len(ids):].tolist()
table(["", "ours and theirs"],
      [["ids of the prompt", "the same" if same_ids else "not the same"],
       ["logits", f"at most {off:.1e} apart, the largest is {size:.1f}"],
       [f"{NEW} greedy tokens", "the same" if written == plain else "not the same"]])
assert same_ids and off < 1e-4 and written == plain

# %% [markdown]
# *Answer:* about 1e-5, and yes. The difference is not 0, because sums are taken in a different
# order and float32 rounds. Where two tokens are nearly equal, that alone could change a greedy
# text, but here it does not.
#
# ## Speculation there
#
# transformers calls it *assisted generation*: `generate(assistant_model=...)`. In version 5.24 it
# drafts up to 20 tokens, and it stops earlier where the draft model gives its token less than 0.4
# (our drafter `confidence`). Both can be set, and with gamma tokens and a threshold of 0 it drafts
# as we do.
#
# We count calls at temperature 0. *Guess first:* with gamma = 4 on both sides, which program needs
# fewer calls of the target for the same text? And with its defaults, of which model does
# transformers need fewer calls?

# %%
calls = {"target": 0, "draft model": 0}
for name, model in ("target", theirs), ("draft model", assistant):
    model.register_forward_pre_hook(lambda *_, name=name: calls.update({name: calls[name] + 1}))


def assisted(**settings):
    """The tokens after each call of the target in transformers; calls of the draft model."""
    for name, value in settings.items():
        setattr(assistant.generation_config, name, value)
    calls.update({"target": 0, "draft model": 0})
    grown = {}

    def look(sequence, scores, **_):
        grown[calls["target"]] = sequence.shape[1] - len(ids)
        return torch.zeros(1, dtype=torch.bool)

    text = theirs.generate(x, assistant_model=assistant, stopping_criteria=[look], **fixed)
    assert text[0, len(ids):].tolist() == plain
    return list(grown.values()), calls["draft model"]


def ours(gamma):
    """The same in this library."""
    grown, text, steps = [], [], 0
    for done in speculate(target, ModelDrafter(draft_model, gamma), ids, NEW, temperature=0):
        text, steps = text + done.emitted, steps + done.steps
        grown.append(len(text))
    assert text == plain
    return grown, steps


# %%
found = {"plain": (list(range(1, NEW + 1)), 0), "transformers, its defaults": assisted(),
         "ours, gamma = 4": ours(4),
         "transformers, gamma = 4": assisted(num_assistant_tokens=4,
                                             assistant_confidence_threshold=0.0,
                                             num_assistant_tokens_schedule="constant")}
table(["way", "calls of the target", "tokens per call", "calls of the draft model"],
      [[name, len(grown), f"{NEW / len(grown):.2f}", steps]
       for name, (grown, steps) in found.items()])
figures.into_the_world({name: grown for name, (grown, _) in found.items()})

# %% [markdown]
# *Answer:* with the same gamma, both need equally many. At temperature 0 a round involves no
# chance: with the same draft model, the same target and the same gamma, the rounds are the same.
# Two programs that share no line of code agree call by call. (Only the last round differs, since
# transformers drafts no tokens beyond the requested length.) Its defaults save calls of the draft
# model, which may cost calls of the target. c, measured in *How fast*, tells which of the two is
# more expensive.
#
# The texts agree as well. At other temperatures nothing can be compared token by token. There one
# needs a walk or the tests of *How to test a sampler*, and docs/JUDGE.md judges other people's
# samplers by their samples.
#
# ## What it would take to serve it
#
# Many requests at once, on a GPU, are what vLLM and SGLang are made for, and they open the same
# folders. With vLLM it is one command:
#
#     vllm serve FOLDER/target --speculative-config
#         '{"method": "draft_model", "model": "FOLDER/draft", "num_speculative_tokens": 4}'
#
# docs/SCALING.md has the others: EAGLE-3, n-gram, suffix trees, SGLang. It also has a recipe for
# vLLM on a CPU, which was run: there it writes our greedy tokens in as many rounds, and above
# temperature 0 our judge finds its speculation wrong (docs/JUDGE.md). The other direction works,
# too: a Llama, Qwen2 or Qwen3 folder can be our target. `nanospec demo --weights FOLDER` runs
# FOLDER/target and FOLDER/draft.

# %%
again = load_pair(folder)
rounds = list(speculate(again.target, ModelDrafter(again.draft_model, 4), ids, NEW, temperature=0))
print(f"\nread back, our speculation needs {len(rounds)} calls for the same {NEW} tokens")
assert len(rounds) == len(found["ours, gamma = 4"][0])
room.cleanup()

# %% [markdown]
# ## Three things to know
#
# 1. A checkpoint consists of sizes, numbers with names, and a tokenizer. A program that knows the
#    names can read it.
# 2. The same weights give the same logits up to rounding, in any program, and this is the first
#    thing to check.
# 3. At temperature 0, with the same two models and the same gamma, correct programs have the same
#    rounds, but for the last one and for rounding.
#
# ## Change this and run again
#
# 1. Set `num_assistant_tokens` to 2 and to 8, and the gamma of `ours` as well, and see whether they
#    still agree.
# 2. Let transformers compute with `dtype=torch.bfloat16`. How far apart are the logits then? Are
#    the greedy tokens still the same?
# 3. Exchange target and draft model before `export`. What happens to the text, and to the calls?
#
# The answers are in the file of the same name in `lessons/answers/`.
