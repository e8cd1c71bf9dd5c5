"""What a pair would gain, from one pass of both models over a text: nothing is decoded.

The target reads a text, and the draft model reads it too. After every token each says what comes
next. A draft token in the place of the next token x is accepted with probability sum min(p_target,
q_draft), over all x. Once it is known that x came out there, x was the draft token, and
accepted, with probability min(1, q_draft(x) / p_target(x)). From these follow the rounds: where
each could begin, and how likely. So the expected number of target calls needs no coin.

On a text that the target has written this is exact: the expectation over such texts is that of
decoding. On other texts it is an estimate: they hold tokens that the target would not have chosen.

Acceptance length: tokens that a call of the target writes, the bonus token or replacement included.
Acceptance rate: accepted of all draft tokens, also of those after a rejection, as engines print it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from nanospec.cli.bench.measure import measure_costs
from nanospec.cli.method_options import read_pair
from nanospec.cli.quantities import CallCosts, accepted_lengths
from nanospec.cli.show.terminal import ShownTable, show_table
from nanospec.errors import RequestError
from nanospec.fast.autotune import setups_of
from nanospec.fast.announce import announced
from nanospec.files.checkpoint import WEIGHTS
from nanospec.files.corpus import opening, read_texts, to_ids
from nanospec.files.sources import find_source
from nanospec.methods.draft_models.learned import Learned
from nanospec.methods.draft_models.unrolled import before_tokens, whole_texts
from nanospec.methods.trees.tree_reader import longest_chain
from nanospec.probs import Sampling
from nanospec.theory import acceptance

WINDOW = 256            # tokens that are read at once; models know nothing of what came before
OWN = 1.15              # how far off a text's tokens may be accepted that the target could write


def run(text: Path | None = None, draft_model: str = "gpt", temperature: float = 1.0,
        gamma: int = 8,
        tokens: int = 8192, weights: Path | str = WEIGHTS, device: str = "cpu", dtype: str = "auto",
        threads: int | None = None) -> tuple[list[dict], ShownTable]:
    """One row for each draft length up to gamma. text: a file or a folder; None: held-out files of
    the standard library. tokens: how many of them are read.
    """
    pair = read_pair(find_source(weights), device, draft_model)
    if pair.draft_model is None:
        raise RequestError(f"{weights} comes without a draft model: there is nothing that could be "
                           "accepted")
    ids = to_ids(sum(read_texts(text), []) if text else read_texts()[1], pair.tokenizer)
    window = min(WINDOW, pair.target.config.context)
    count = min(len(ids), tokens) // window
    most = longest_chain(pair.draft_model, gamma)
    if most >= window:
        raise RequestError(f"drafts of {most} tokens have no place in texts of {window}")
    if not count:
        raise RequestError(f"{min(len(ids), tokens)} tokens are fewer than a text of {window}")
    texts = ids[:len(ids) // count * count].view(count, -1)             # from all of it
    first = torch.tensor([opening(pair.tokenizer)] * count, dtype=ids.dtype, device=ids.device)
    texts = torch.cat([first, texts], 1)[:, :window]
    setups, where = setups_of(pair.target, pair.draft_model, dtype, threads)
    target, small, _ = setups[-1]
    with announced("reading the text", steps=count) as step:
        stood, beta = judged(target, small, texts.to(target.device), Sampling(temperature), most,
                             step)
    costs = measure_costs(target, small, range(2, most + 2), window // 2, temperature=temperature)
    kinds = by_kind(beta[:, 0], texts[:, 1:], lambda token: pair.tokenizer.decode([token]))
    overall = {"alpha": beta[:, 0].mean().item(), "kinds": kinds}
    rows = [row | overall for row in rows_of(stood, beta, costs)]
    fastest = max(rows, key=lambda row: row["predicted_speedup"])
    best, shares = fastest["gamma"], fastest["accepted_lengths"]
    show_table(["gamma", "acceptance length", "acceptance rate", "v", "predicted speed-up",
                "alpha by position"],
               [[f"{row['gamma']}", f"{row['acceptance_length']:.2f}",
                 f"{row['acceptance_rate']:.2f}", f"{row['v']:.2f}",
                 f"{row['predicted_speedup']:.2f}",
                 " ".join(f"{alpha:.2f}" for alpha in row["alpha_by_position"])] for row in rows],
               f"{where}; {count} texts of {window} tokens, read and not decoded; "
               f"T = {temperature:g}, alpha {rows[0]['alpha']:.3f}, c {costs.c:.3f}; best gamma "
               f"{best}; draft tokens accepted in a round of it: {accepted_lengths(shares)}"
               f"{foreign(stood[:, 0].mean().item(), rows[0]['alpha'])}",
               [row["gamma"] == best for row in rows])
    return rows, show_table(["kind of token", "of 100 tokens", "alpha"],
                            [[kind, f"{100 * share:.1f}", f"{alpha:.3f}"]
                             for kind, (share, alpha) in kinds.items()], "")


def foreign(stood: float, alpha: float) -> str:
    """What is said of a text that this target would not write, where that shows. stood: how often
    the tokens that stand there are accepted; of the target's own text it would be alpha.
    """
    if alpha / OWN <= stood <= alpha * OWN:
        return ""
    return (f"; this is NOT text that the target writes: its tokens would be accepted {stood:.2f} "
            f"of the time, those of the target {alpha:.2f}, so all lengths here are too "
            f"{'large' if stood > alpha else 'small'}")


@torch.inference_mode()
def judged(target: Any, draft_model: Any, texts: Tensor, sampling: Callable[[Tensor], Tensor],
           most: int, step: Callable[[], None] = lambda: None) -> tuple[Tensor, Tensor]:
    """Of texts (N, T): stood and beta (N, most, J), J = T - most places, of which place j is that
    of token j + 1. step is called after each text.

    beta: how often a draft token in this place is accepted, as draft token 1, 2, ... most of its
    round. stood: the same once it is known which token of the text came out. Where the target would
    never write that token, stood is beta.
    """
    J, found = texts.shape[1] - most, []
    for tokens in texts[:, None]:                                               # (1, T)
        p_target, of_places = _both(target, draft_model, tokens, most)
        p_target, x = sampling(p_target[0, :J]), tokens[0, 1:J + 1, None]
        of_text = []
        for logits in of_places:
            q_draft = sampling(logits[:J])
            beta, p_x = acceptance(p_target, q_draft), p_target.gather(-1, x)[:, 0]
            ratio = (q_draft.gather(-1, x)[:, 0] / p_x).clamp(max=1)
            of_text.append(torch.stack([torch.where(p_x > 0, ratio, beta), beta]))
        # A GPT answers in the same way wherever in its round it drafts.
        found.append(torch.stack((of_text * most)[:most], 1))
        step()
    stood, beta = torch.stack(found, 1).double().cpu()
    return stood, beta


def _both(target: Any, draft_model: Any, tokens: Tensor,
          most: int) -> tuple[Tensor, Iterator[Tensor]]:
    """Logits of the target (1, T, V), and of the draft model (T - most, V) for each place of a
    round.
    """
    if not isinstance(draft_model, Learned):
        return target(tokens), iter([draft_model(tokens)[0]])
    logits, hidden = target(tokens, layers=draft_model.layers)
    hidden = before_tokens(hidden).to(draft_model.dtype)
    answers = whole_texts(draft_model, tokens, hidden, most)[:, 0]
    # Answer k of anchor a is for place a + k. No round asks for those of the first k places.
    return logits, (answer.roll(k, 0) for k, answer in enumerate(answers))


def places_of_rounds(stood: Tensor) -> Tensor:
    """stood (N, gamma, J) -> (N, gamma + 1, J): how likely place j is that of draft token i + 1 of
    a round; i = gamma: of the bonus token. The first place is a round's first. A place with i = 0
    is a call of the target.
    """
    now, found = stood.new_zeros(len(stood), stood.shape[1] + 1), []
    now[:, 0] = 1
    for chance in stood.unbind(-1):
        found.append(now)
        on = now[:, :-1] * chance
        now = torch.cat([1 - on.sum(1, keepdim=True), on], 1)
    return torch.stack(found, -1)


def rows_of(stood: Tensor, beta: Tensor, costs: CallCosts) -> list[dict]:
    """For each draft length its acceptance length and rate, alpha by position, how often 0, 1, 2,
    ... of its draft tokens are accepted, and its speed-up.
    """
    rows = []
    for gamma in range(1, stood.shape[1] + 1):
        likely = places_of_rounds(stood[:, :gamma])
        first, drafted = likely[:, 0], likely[:, :-1]
        tokens = first.numel() / first.sum().item()
        alphas = (drafted * beta[:, :gamma]).sum((0, 2)) / drafted.sum((0, 2)).clamp(min=1e-12)
        rows.append({"gamma": gamma, "acceptance_length": tokens,
                     "acceptance_rate": (tokens - 1) / gamma,
                     "alpha_by_position": alphas.tolist(),
                     "accepted_lengths": lengths_of_rounds(likely),
                     "c": costs.c, "v": costs.v[gamma + 1],
                     "predicted_speedup": tokens / costs.round(gamma, gamma + 1)})
    return rows


def lengths_of_rounds(likely: Tensor) -> list[float]:
    """As places_of_rounds has it -> in which share of rounds 0, 1, ... draft tokens are accepted.
    Of those that begin where a whole one has room; [] where there is none.
    """
    gamma = likely.shape[1] - 1
    begun = likely.shape[2] - gamma
    if begun < 1:
        return []
    come = [likely[:, k, k:k + begun].sum().item() for k in range(gamma + 1)]
    return [(now - on) / come[0] for now, on in zip(come, [*come[1:], 0.0])]


def by_kind(beta: Tensor, tokens: Tensor,
            decode: Callable[[int], str]) -> dict[str, tuple[float, float]]:
    """Kind -> (its share of the tokens, alpha there). beta (N, J); tokens (N, J or more)."""
    found: dict[str, list[float]] = {}
    for token, value in zip(tokens[:, :beta.shape[1]].flatten().tolist(), beta.flatten().tolist()):
        found.setdefault(kind_of(decode(token)), []).append(value)
    return {kind: (len(values) / beta.numel(), fmean(values))
            for kind, values in sorted(found.items())}


def kind_of(text: str) -> str:
    """Example: " def" is the beginning of a word, "def" may be the rest of one."""
    bare = text.strip()
    if not bare:
        return "white space"
    if not any(character.isalnum() for character in bare):
        return "signs"
    if bare.isdigit():
        return "digits"
    return "the beginning of a word" if text[0].isspace() else "a word, or the rest of one"
