"""What the lessons share: dice for a single text, tables, the list of lessons, short trainings, a
warning about a busy machine, links to the page to play with.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time

import __main__
import torch
from rich.console import Console
from rich.table import Table

from nanospec.cli.launch import quiet
from nanospec.cli.quantities import BUSY
from nanospec.dice import Dice
from nanospec.files.corpus import read_texts
from nanospec.methods.draft_models.losses import forward_kl, total_variation
from nanospec.methods.draft_models.mlp import MLPSpeculator
from nanospec.methods.draft_models.unrolled import before_tokens, learned_loss, whole_texts

if Path(getattr(__main__, "__file__", "")).resolve().parent == Path(__file__).resolve().parent:
    quiet()             # a lesson that runs as a script, and not a notebook or a test


class OneRow:
    """Dice for one text. The library's dice serve B rows and take (B, ...) tensors. Here a distribution is (V,),
    a probability is a number, and the results are plain Python. `dice` may also be the walking dice of a proof.
    """

    def __init__(self, dice=None, seed: int = 0):
        self.dice = dice or Dice([seed])

    def pick(self, weights) -> int:
        """Non-negative weights (V,) -> an index, drawn in proportion to them."""
        self.dice.refill(1)
        return int(self.dice.pick(torch.as_tensor(weights, dtype=torch.float64)[None]))

    def flip(self, prob) -> bool:
        """True with probability min(1, prob)."""
        self.dice.refill(1)
        return bool(self.dice.flip(torch.as_tensor(prob, dtype=torch.float64).view(1, 1)))


def table(columns: Sequence[str], lines: Sequence[Sequence], note: str = "") -> None:
    """Print lines under their headings. Cells are printed as they are, so numbers must be formatted first."""
    shown = Table(box=None, header_style="bold", padding=(0, 3, 0, 0), caption=note or None, caption_justify="left",
                  caption_style="dim")
    for number, name in enumerate(columns):
        shown.add_column(str(name), justify="left" if number == 0 else "right", no_wrap=True)
    for line in lines:
        shown.add_row(*map(str, line))
    console = Console(markup=False)
    console.width = max(console.width, 110)         # a number cut short would be a wrong one
    console.print()
    console.print(shown)


def page(view: str) -> str:
    """The link to a view of the page to play with, in a browser: "replay", "formulas" or "exact"."""
    return f"{(Path(__file__).resolve().parent.parent / 'docs' / 'index.html').as_uri()}#{view}"


def title_of(lesson: Path) -> str:
    """lessons/04_the_cache.py -> "The cache". Lessons refer to one another by title, so that numbers can change."""
    return lesson.stem[3:].replace("_", " ").capitalize()


def contents(folder: Path = Path(__file__).parent) -> list[tuple[str, str, str]]:
    """(number, title, question) of every lesson. The question is the first bold text of the file."""
    found = []
    for lesson in sorted(folder.glob("[0-9][0-9]_*.py")):
        question = re.search(r"\*\*(.+?)\*\*", lesson.read_text(encoding="utf-8"), re.S)[1]
        found.append((str(int(lesson.name[:2])), title_of(lesson), question.replace("\n# ", " ")))
    return found


def pieces_of(tokenizer, texts: Sequence[str], count: int) -> torch.Tensor:
    """(count, 256) tokens, each piece from the start of a method."""
    found = []
    for text in texts:
        at = text.find("\n    def ", len(text) // 3)
        ids = tokenizer.encode(text[at:at + 1500])[:256] if at >= 0 else []
        if len(ids) == 256 and len(found) < count:
            found.append(ids)
    return torch.tensor(found)


@torch.no_grad()
def read(target, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """-> the last layer's hidden states before each token (B, T, 1, C), the distributions after each (B, T, V)."""
    logits, hidden = target(tokens, layers=[target.config.layers - 1])
    return before_tokens(hidden), logits.softmax(-1)                # zeros before the first token


@torch.no_grad()
def of_target(target, tokens: torch.Tensor, layers: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """-> the hidden states of these layers (B, T, layers, C), the log-probabilities after each token (B, T, V)."""
    logits, hidden = target(tokens, layers=layers)
    return hidden, logits.log_softmax(-1)


def learn_and_test(target, tokenizer, count: int) -> tuple[tuple, tuple]:
    """The texts of *What the target knows ahead*: `count` pieces to learn from, and six held-out ones to measure with.
    Of both: (tokens, *read(target, tokens)).
    """
    train_texts, held_out = read_texts()
    learn, test = pieces_of(tokenizer, train_texts[::7], count), pieces_of(tokenizer, held_out[::2], 6)
    return (learn, *read(target, learn)), (test, *read(target, test))


def train(model, texts: tuple[torch.Tensor, torch.Tensor, torch.Tensor], steps: int, ahead: int, slow: str = "none"):
    """Train a draft model for some seconds, as *What the target knows ahead* does it by hand -> the model, frozen.

    texts: (tokens, *read(target, tokens)). ahead: how many tokens after each place are learned. Weights whose name
    starts with `slow` take steps ten times smaller.
    """
    groups = [{"params": [weight], "most": 0.001 if name.startswith(slow) else 0.01}
              for name, weight in model.named_parameters()]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.99), weight_decay=0)
    (tokens, before, p_target), chance = texts, torch.Generator().manual_seed(1)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = group["most"] * min(1, (step + 1) / 10, 2 - 2 * step / steps)
        rows = torch.randint(len(tokens), (8,), generator=chance)
        at = int(torch.randint(256 - 63, (1,), generator=chance))
        part = slice(at, at + 64)
        log_q = whole_texts(model, tokens[rows, part], before[rows, part], ahead).log_softmax(-1)
        labels, places, loss = p_target[rows, part], log_q.shape[2], torch.zeros(())
        for k in range(ahead):
            loss = loss - (labels[:, k:k + places] * log_q[k]).sum(-1).mean() / ahead
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.requires_grad_(False)


def new_speculator(target, width: int) -> MLPSpeculator:
    """The draft model of *A state that reads its draft*, untrained: `start` is zero."""
    torch.manual_seed(0)
    model = MLPSpeculator(target.config.vocab_size, target.config.channels, [target.config.layers - 1], width=width)
    torch.nn.init.zeros_(model.start.weight)
    return model.attach(target)


def windows(tokenizer, texts: Sequence[str], count: int, length: int = 128) -> torch.Tensor:
    """(count, length) tokens, each window from the middle of a file."""
    middles = [text[len(text) // 3:][:3000] for text in texts if len(text) > 6000]
    chosen = middles[::max(1, len(middles) // count)]
    return torch.tensor([tokenizer.encode(text)[:length] for text in chosen[:count]])


def train_layer(model, texts: tuple[torch.Tensor, torch.Tensor, torch.Tensor], steps: int, rate: float = 3e-3):
    """Train an EAGLE on its own loss with AdamW -> the model. Four windows a step, the same ones for every model.

    texts: tokens (B, T), the target's hidden states (B, T, layers, C), its log-probabilities after each (B, T, V).
    """
    shuffle = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(steps):
        for group in optimizer.param_groups:                        # up in 5 steps; down over the last half
            group["lr"] = rate * min(1, (step + 1) / 5, 2 * (steps - step) / steps)
        some = torch.randperm(len(texts[0]), generator=shuffle)[:4]
        optimizer.zero_grad()
        learned_loss(model, *(part[some] for part in texts), forward_kl).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model


@torch.no_grad()
def along(model, texts: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> list[float]:
    """alpha at draft tokens 1 to 5 on texts as `train_layer` takes them, with the true tokens as draft tokens."""
    tokens, hidden, p_target = texts
    logits = whole_texts(model, tokens, before_tokens(hidden), 5)               # (5, B, places, V)
    places, q_draft = logits.shape[2], logits.log_softmax(-1)
    return [1 - total_variation(p_target[:, k:k + places], q_draft[k]).mean().item() for k in range(5)]


class Quiet:
    """Was the machine busy with something else while a lesson measured? The same work is timed at the beginning, at
    the end, and whenever the lesson calls `look`: does it take equally long, and did the processor work for us?

    quiet = Quiet(lambda: step_seconds(target, repeats=3)); ...; quiet.tell("v(2) 1.04, v(10) 1.21")
    """

    def __init__(self, seconds: Callable[[], float]):
        self.seconds, self.took, self.passed, self.got = seconds, [], 0.0, 0.0
        self.look(3)

    def look(self, times: int = 1) -> None:
        passed, got = perf_counter(), process_time()
        self.took += [self.seconds() for _ in range(times)]
        self.passed += perf_counter() - passed
        self.got += process_time() - got

    def tell(self, recorded: str) -> None:
        """Print nothing, or a warning together with example figures, recorded on an idle machine."""
        self.look(3)
        found = ""
        if max(self.took) > BUSY * min(self.took):
            found = f"the same step took {1e3 * min(self.took):.2f} to {1e3 * max(self.took):.2f} ms"
        elif self.passed > BUSY * self.got and self.passed - self.got > 0.05:      # seconds
            found = f"of {self.passed:.1f} seconds of measuring, the processor worked here for {self.got:.1f}"
        if found:
            print(f"\nThis machine is busy: {found}. Run the lesson again later. On an idle machine: {recorded}.")
