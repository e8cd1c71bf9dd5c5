"""One text, written three times: by the target alone, with the drafts of a small GPT, and with
those of a model that reads the target's hidden states.

    python demo.py

Green was drafted and accepted, red was drafted and rejected, yellow stands in its place, and blue
is a bonus token. `nanospec demo --help` shows the same for other models, prompts and methods.
"""

from statistics import median
from time import perf_counter

import torch
from rich.console import Console
from rich.text import Text

from nanospec.files import load_pair
from nanospec.generate import generate
from nanospec.speculate import ModelDrafter, speculate, tokens_of

PROMPT = "class Queue:\n    def __init__(self):\n        self.items = []\n\n    def "
NEW, TURNS = 128, 3                             # tokens of each text; how often each is timed
WAYS = {"the target alone": (None, 0), "a small GPT drafts": ("gpt", 4), "prefix drafts": ("prefix", 6)}
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)                        # a model this small is quickest on one core
console = Console(highlight=False)


def coloured(done, decode) -> Text:
    """A round's tokens: those that were accepted, the rejected one, and the one that follows."""
    accepted = len(done.path)
    shown = Text(decode(done.emitted[:accepted]), "green")
    if console.is_terminal:                     # in a file a rejected token would look like text
        shown.append(decode(done.rejected).replace("\n", "⏎"), "red strike")
    return shown.append(decode(done.emitted[accepted:]), "yellow underline" if done.rejected else "bold blue")


def write(name, temperature, show=lambda shown: None):
    """The tokens, the calls of the target, and the seconds that they took."""
    pair, gamma = pairs[name], WAYS[name][1]
    ids, began = pair.tokenizer.encode(PROMPT), perf_counter()
    if not gamma:
        tokens = []
        for token in generate(pair.target, ids, NEW, temperature):
            tokens.append(token)
            show(Text(pair.tokenizer.decode([token])))
        return tokens, NEW, perf_counter() - began
    rounds = []
    for done in speculate(pair.target, ModelDrafter(pair.draft, gamma), ids, NEW, temperature):
        rounds.append(done)
        show(coloured(done, pair.tokenizer.decode))
    return tokens_of(rounds), len(rounds), perf_counter() - began


pairs = {name: load_pair(device=device, draft=draft or "gpt") for name, (draft, _) in WAYS.items()}
found = {}
for name in WAYS:
    console.print(f"\n[bold]{name}[/]\n[dim]{PROMPT}[/]", end="")
    found[name] = write(name, 0, lambda shown: console.print(shown, end=""))
    console.print()
