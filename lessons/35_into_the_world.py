# %% [markdown]
# # 35. Into the world
#
# **Does it hold for models that others made, and in programs that others wrote?**
#
# Until now everything was ours: the GPT, the file it is kept in, the loop around it.
# People keep models in another form, the Hugging Face folder, and three programs read it
# everywhere: transformers, vLLM and SGLang. This lesson sends our pair there, and looks at what
# comes back: the same numbers? the same tokens? the same speed-up?
#
# You need lesson 4 (the cache), lesson 8 (a round) and lesson 9 (greedy decoding).

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
from nanospec.files.export import export
from nanospec.files.huggingface import names
from nanospec.generate import generate
from nanospec.speculate import speculate

if not find_spec("transformers"):
    sys.exit("This lesson needs the library transformers: pip install -e '.[hf]'")
from transformers import AutoModelForCausalLM, AutoTokenizer, logging  # noqa: E402

logging.set_verbosity_error()
logging.disable_progress_bar()
torch.set_num_threads(1)
pair = target, draft, tokenizer = load_pair()

# %% [markdown]
# ## What is in a folder
#
# `export` writes two folders, target and draft. Each holds the sizes (config.json), the weights
# (model.safetensors), and the tokenizer. All of it is JSON and numbers. Nothing in such a folder
# has to be executed, and our reader executes nothing.
#
# Our GPT is Llama's network, so every weight has a name there. *Guess first:* a layer of ours has
# 6 tensors. How many has the same layer in the folder?

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
# Three matrices of attention are one here, and two of the MLP: fewer, larger calls. A row of a
# matrix stays a row, so this is a matter of names, and no number changes.
#
# ## The same numbers?
#
# Now transformers opens the folders. *Guess first:* both programs compute in float32. How far apart
# are their logits at most: 0, 1e-5 or 1e-2? And their greedy tokens?

# %%
theirs, their_draft = (AutoModelForCausalLM.from_pretrained(folder / name, dtype=torch.float32)
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
# Not 0: sums are taken in another order, and float32 rounds. Where two tokens are nearly as good,
# that alone could turn a greedy text. Here it does not.
#
# ## Speculation there
#
# transformers calls it *assisted generation*: `generate(assistant_model=...)`. In version 5.23 it
# drafts up to 20 tokens. It stops earlier where the draft model is not sure of its token: where
# that has less than 0.4 (lesson 22; our drafter `confidence`). Both can be set. With gamma tokens
# and a threshold of 0 it drafts as we do.
#
# We count calls at temperature 0. *Guess first:* with gamma = 4 on both sides, who needs fewer
# calls of the target for the same text? And its defaults: fewer calls of which model?

# %%
calls = {"target": 0, "draft": 0}
for name, model in ("target", theirs), ("draft", their_draft):
    model.register_forward_pre_hook(lambda *_, name=name: calls.update({name: calls[name] + 1}))


def assisted(**settings):
    """How many tokens stand there after each call of the target in transformers, and the draft's
    calls."""
    for name, value in settings.items():
        setattr(their_draft.generation_config, name, value)
    calls.update(target=0, draft=0)
    grown = {}

    def look(sequence, scores, **_):
        grown[calls["target"]] = sequence.shape[1] - len(ids)
        return torch.zeros(1, dtype=torch.bool)

    text = theirs.generate(x, assistant_model=their_draft, stopping_criteria=[look], **fixed)
    assert text[0, len(ids):].tolist() == plain
    return list(grown.values()), calls["draft"]


def ours(gamma):
    """The same in this library."""
    grown, text, steps = [], [], 0
    for done in speculate(target, ModelDrafter(draft, gamma), ids, NEW, temperature=0):
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
table(["way", "calls of the target", "tokens per call", "calls of the draft"],
      [[name, len(grown), f"{NEW / len(grown):.2f}", steps]
       for name, (grown, steps) in found.items()])
figures.into_the_world({name: grown for name, (grown, _) in found.items()})

# %% [markdown]
# At temperature 0 a round has no chance in it: the same draft, the same target, the same gamma,
# so the same rounds. Two programs that share no line of code agree call by call. (Only the last
# round differs: what nobody asked for is not drafted there.) Its defaults save calls of the draft
# model. That may cost calls of the target. Lesson 11 says which of the two is dear.
#
# The texts agree as well. At other temperatures there is nothing to compare token by token. There
# one needs a walk (lesson 13), and docs/PROOF.md judges samplers of others by their samples.
#
# ## What it would take to serve it
#
# Many people at once (lesson 27): that is vLLM's and SGLang's trade, and they open the same
# folders. With vLLM it is one command, on a GPU:
#
#     vllm serve FOLDER/target --speculative-config
#         '{"method": "draft_model", "model": "FOLDER/draft", "num_speculative_tokens": 4}'
#
# docs/SCALING.md has the others: EAGLE-3, n-gram, suffix trees, SGLang; and a recipe for vLLM on a
# CPU, which was run. There it writes our greedy tokens in as many rounds. Above temperature 0 the
# judge of lesson 13 calls its speculation wrong (docs/PROOF.md). And it works the other way round:
# any Llama, Qwen2 or Qwen3 folder can be our target. `python demo.py --weights FOLDER` runs
# FOLDER/target and FOLDER/draft.

# %%
again = load_pair(folder)
rounds = list(speculate(again.target, ModelDrafter(again.draft, 4), ids, NEW, temperature=0))
print(f"\nread back, our speculation needs {len(rounds)} calls for the same {NEW} tokens")
assert len(rounds) == len(found["ours, gamma = 4"][0])
room.cleanup()

# %% [markdown]
# ## Three things to know
#
# 1. A checkpoint is sizes, numbers with names, and a tokenizer. Who knows the names can read it.
# 2. The same weights give the same logits up to rounding, in any program. Check that first.
# 3. At temperature 0 and with the same gamma every right program has the same rounds.
#
# ## Change this and run again
#
# 1. Set `num_assistant_tokens` to 2 and to 8, and the gamma of `ours` as well. Do they still agree?
# 2. Let transformers compute with `dtype=torch.bfloat16`. How far apart are the logits then? Are
#    the greedy tokens still the same?
# 3. Exchange target and draft, before `export`. What happens to the text, and to the calls?
#
# The answers are in `lessons/answers/35_into_the_world.md`.
#
# This is the last lesson. Where now? Read `nanospec/speculate.py` from top to bottom. Judge a
# sampler of somebody else (docs/PROOF.md). Write a drafter of your own (docs/CONTRIBUTING.md).
