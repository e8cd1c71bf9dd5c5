"""What a finished training has reached: a sample of text, losses on what is held out, how often the draft is right."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from nanospec.bench.measure import measure_alpha, measure_costs
from nanospec.draft_models import LEARNED
from nanospec.fast.autotune import settle, settle_draft
from nanospec.files.checkpoint import Pair, load_learned, load_pair
from nanospec.generate import generate
from nanospec.theory import best_gamma, break_even, speedup
from nanospec.training.batches import HeldOut
from nanospec.training.pair import PHASES, held_out_loss


def report(console: Console, out: Path, held: list[HeldOut], device: str, what: str) -> None:
    """Of a learned draft model, how often it is right alone: the pair is another training's."""
    learned = what in LEARNED
    pair = load_pair(out, device, draft=what if learned else "gpt")
    if not learned:
        tell_of_pair(console, pair, held)
    context, ids = pair.target.config.context, held[0].ids
    prompts = [ids[i:i + context // 4].tolist() for i in range(0, len(ids) - context, len(ids) // 8)]
    for temperature in (1.0, 0.8, 0.0):
        alpha = measure_alpha(pair.target, pair.draft, prompts, temperature=temperature, max_new_tokens=context // 4)
        console.print(f"alpha of {what} at T = {temperature}: {alpha:.3f}")


def tell_of_pair(console: Console, pair: Pair, held: list[HeldOut]) -> None:
    context = pair.target.config.context
    ids = pair.tokenizer.encode("def ")
    text = pair.tokenizer.decode(ids + list(generate(pair.target, ids, max_new_tokens=context // 2, temperature=0.8)))
    console.print(text, style="dim", markup=False)
    for part in held:
        loss, draft, kl = (held_out_loss(phase, pair.target if phase == "target" else pair.draft, pair.target, part, 16)
                           for phase in PHASES)
        console.print(f"held out of {part.name}: target {loss:.4f} nats a token, {part.bits(loss):.4f} bits a byte; "
                      f"draft {draft:.4f} nats a token, KL {kl:.4f}", markup=False)


def needed(out: Path, names: Sequence[str], device: str, of_draft: float, gamma: int = 4) -> list[dict[str, float]]:
    """For each learned draft model: what to compare with -> how often every draft token has to be accepted to be as
    fast, by the formula, at the costs measured here; without what no draft model can reach. of_draft: the same of the
    pair's draft GPT, which drafts as many tokens, at most gamma, as are best for it.
    """
    target, gpt, _ = load_pair(out, device)
    models = [load_learned(out / f"{name}.pt", target, name) for name in names]
    settle(target, gpt)
    for model in models:
        settle_draft(target, model)
    its, *others = (measure_costs(target, model, range(2, gamma + 2)) for model in (gpt, *models))
    count = best_gamma(of_draft, its.c, its.v.__getitem__, gamma)
    best = speedup(of_draft, count, its.c, its.v[count + 1])
    levels = []
    for own in others:
        of = {said: break_even(gain, gamma, own.c, own.v[gamma + 1])
              for said, gain in {"as fast as plain decoding": 1.0, "as fast as the draft GPT": best}.items()}
        levels.append({said: level for said, level in of.items() if level <= 1})
    return levels
