"""One text, written three times: by the target alone, with the drafts of a small GPT, and with
those of a draft model that reads the target's hidden states.

    python demo.py

Green was drafted and accepted. Red was drafted and rejected, and yellow stands in its place. Blue
is a bonus, written where all was accepted. `nanospec demo --help` has other models and methods.
"""

from statistics import median
from time import perf_counter

import torch
from rich.console import Console
from rich.progress import track
from rich.text import Text

from nanospec.files import load_pair
from nanospec.generate import generate
from nanospec.speculate import ModelDrafter, speculate, tokens_of

PROMPT = 'def find_files(root, suffix):\n    """Yield'
NEW, TURNS = 64, 3                              # tokens of a text; how often each is timed
DRAFT_MODELS = {"the target alone": None, "a small GPT drafts": "gpt", "prefix drafts": "prefix"}
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)                        # models this small are quickest on one core
# A draft model belongs to the target that it was loaded with, so each way has one.
pairs = {way: load_pair(device=device, draft_model=name or "gpt")
         for way, name in DRAFT_MODELS.items()}
console = Console(highlight=False)


def write(way: str, temperature: float, show=lambda text: None) -> tuple[list[int], int, float]:
    """The tokens of one text, the target's calls, and the seconds that it took."""
    target, draft_model, tokenizer = pairs[way]
    ids, began = tokenizer.begin + tokenizer.encode(PROMPT), perf_counter()
    if DRAFT_MODELS[way] is None:
        tokens = []
        for token in generate(target, ids, NEW, temperature):
            tokens.append(token)
            show(Text(tokenizer.decode([token])))
        return tokens, NEW, perf_counter() - began
    rounds = []
    for done in speculate(target, ModelDrafter(draft_model, gamma=4), ids, NEW, temperature):
        rounds.append(done)
        accepted = len(done.path)
        text = Text(tokenizer.decode(done.emitted[:accepted]), "green")
        if console.is_terminal:                 # in a file, what was rejected would look like text
            text.append(tokenizer.decode(done.rejected).replace("\n", "⏎"), "red strike")
        style = "yellow underline" if done.rejected else "bold blue"
        show(text.append(tokenizer.decode(done.emitted[accepted:]), style))
    return tokens_of(rounds), len(rounds), perf_counter() - began


console.print("[green]accepted[/]  [red strike]rejected[/]  [yellow underline]in its place[/]",
              " [bold blue]bonus[/]")
texts, watched = [], []
for way in pairs:
    console.print(f"\n[bold]{way}[/]\n[dim]{PROMPT}[/]", end="")
    tokens, calls, seconds = write(way, 0, lambda text: console.print(text, end="", soft_wrap=True))
    console.print(f"\n[dim]{NEW} tokens in {calls} calls of the target, {seconds:.1f} seconds[/]")
    texts.append(tokens)
    watched.append(seconds)
same = texts == texts[:1] * len(texts)
console.print("\nThe three texts are", "the same, token for token." if same else "NOT the same.")

for temperature, turns in (0, [watched]), (0.8, []):        # a turn: all three, one by one
    for _ in track(range(TURNS - len(turns)), f"again, at temperature {temperature}",
                   console=console, transient=True, disable=not console.is_terminal):
        turns.append([write(way, temperature)[2] for way in pairs])
    gains = [f"{median(turn[0] / turn[i] for turn in turns):.2f} ({way})"
             for i, way in enumerate(pairs) if i]
    console.print(f"Times as fast at temperature {temperature}:", ", ".join(gains))
