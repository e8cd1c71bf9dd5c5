"""The likeliest reason why texts are not greedy: what explains more than half of them."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import filterfalse, islice, product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nanospec.errors import RequestError
from nanospec.judge.rounding import Read, choices, read, rows
from nanospec.judge.sequential import MISS
from nanospec.judge.verdict import own_uniforms, uniform
from nanospec.methods.wrappers.penalties import repeated
from nanospec.probs import Sampling
from nanospec.proof.stats import pit

PENALTIES = 1.02, 1.05, 1.1, 1.15, 1.2, 1.3
SUBTRACTED = [number / 20 for number in range(1, 41)]       # OpenAI's interface has up to 2
TEMPERATURES = .2, .3, .4, .5, .6, .7, .8, .9, 1.0, 1.2, 1.5
MOST_OF = .8            # of the tokens that are off
PASSED = 2              # tokens that are off: one may have passed over another by chance
SHIFTS, ALIKE = 4, 4    # places that a text may be shifted by, tokens by which that is seen
BEGINS = 4              # tokens in which another prompt shows
FEWEST = 64             # tokens of which a temperature is known


class Case(NamedTuple):
    """A text that is off. other: the tokens of the text beside it."""

    prompt: list[int]
    text: Read
    other: list[int]


class Kind(NamedTuple):
    """words: what it is. asked: whether it is no bug, but a setting of right programs. exact: of
    what may be a bug, whether with it nothing is off.
    """

    words: str
    asked: bool = False
    exact: bool = False


def likeliest(target: Any, cases: Sequence[Case], beyond: float, tokenizer: Any,
              draft_model: Any = None) -> Kind:
    """target: a float call of it. beyond: more below the best than that is off."""
    ends = sorted(tokenizer.ends)

    def fits(case: Case, prompt: list[int], *change: Callable) -> bool:
        """Whether nothing is off, nor nearly so, if it is read so."""
        return bool(prompt) and not read(target, prompt, case.text.tokens, ends,
                                         *change).off(beyond / 2)

    def explains(holds: Callable[[Case], bool]) -> bool:
        """Whether it holds for more than half. At half that it does not hold for, no more is read.
        """
        half = (len(cases) + 1) // 2
        return len([*islice(filterfalse(holds, cases), half)]) < half

    begin = len(tokenizer.begin)
    if explains(lambda case: len(case.prompt) > begin and any(
            case.text.tokens[:len(ids)] == ids for ids in (case.prompt, case.prompt[begin:]))):
        return Kind("it begins with its prompt: give only what was written after it", asked=True)
    penalties = [*islice((
        f"a repetition penalty of {penalty:g}" for penalty in PENALTIES
        if explains(lambda case: fits(case, case.prompt, partial(penalised, case, penalty)))), 1)]
    known = [subtracted(target, case, beyond / 2, ends) for case in cases]
    for name in "frequency", "presence":
        for prompt_counts in False, True:
            of_all = [each[name, prompt_counts] for each in known]
            would = [x for x in SUBTRACTED
                     if sum(least <= x <= most for least, most in of_all) > len(cases) / 2]
            if would:
                counted = " that counts the prompt's tokens" * prompt_counts
                penalties.append(f"a {name} penalty of {would[len(would) // 2]:g}{counted}")
                break
    if penalties:
        return Kind(f"{' or '.join(penalties)} would do it, too, which a request or a "
                    "generation_config.json may name", asked=True)
    for name, prompt_of in prompts(tokenizer):
        if explains(lambda case: fits(case, prompt_of(case.prompt))):
            return Kind(f"it reads the prompt {name}, or was asked so", exact=True)
    for places in range(1, SHIFTS + 1):
        lost = explains(lambda case: shifted(case.text.tokens, case.other, places))
        if lost or explains(lambda case: shifted(case.other, case.text.tokens, places)):
            by = "one place" if places == 1 else f"{places} places"
            return Kind(f"shifted by {by}: tokens are {'lost' if lost else 'written twice'}")
    found = [(case, case.text.off(beyond)) for case in cases]

    def are(best_of: Callable[[Case, int], int]) -> bool:
        hits = [case.text.tokens[place] == best_of(case, place)
                for case, places in found for place in places]
        return sum(hits) >= MOST_OF * len(hits)

    if are(lambda case, place: int(case.text.best[place - 1, 0]) if place else -1):
        return Kind("shifted by one place: a token is chosen by the logits of the place before")
    if draft_model is not None:
        drafts = {id(case): read(draft_model, case.prompt, case.text.tokens).best[:, 0].tolist()
                  for case in cases}
        if are(lambda case, place: drafts[id(case)][place]):
            return Kind("draft tokens unverified: where it is off it writes what the draft model "
                        "has as its likeliest token")
    passed_over = [had for case in cases for had in seen_before(target, case, beyond, ends)]
    if len(passed_over) >= PASSED and all(passed_over):
        return Kind("each token that it passes over stands there already: a penalty of another "
                    "kind, or a ban of repeated n-grams, would do it, too", asked=True)
    temperature, left = drawn_at(target, cases), []
    if temperature:
        left.append(f"not greedy at all, as if drawn at temperature {temperature:g}")
    elif sum(len(case.text.tokens) for case in cases) < FEWEST:
        left.append("not greedy at all (more tokens would tell)")
    if draft_model is None:
        left.append("draft tokens unverified (a TARGET that is a folder with a pair would tell)")
    if explains(lambda case: case.text.off(beyond)[0] < BEGINS):
        left.append("it reads another prompt, as in another template, or was asked so")
    return Kind(", or ".join(left) or "none that is known here; other weights would do it, too")


def prompts(tokenizer: Any) -> Iterator[tuple[str, Callable[[list[int]], list[int]]]]:
    """How a program may read a prompt: in words, and its tokens."""
    begin = [*tokenizer.begin]
    if begin:
        yield "without its BOS (what begins a text)", lambda ids: (
            ids[len(begin):] if ids[:len(begin)] == begin else [])
        yield "with one BOS more (what begins a text)", lambda ids: begin + ids
    yield "with its special tokens as ordinary text", lambda ids: spelled(tokenizer, ids)
    line = tokenizer.continued("\n")
    yield "with a line's end after it", lambda ids: ids + line
    yield "without its last token", lambda ids: ids[:-1]
    yield "twice", lambda ids: ids + ids
    if getattr(tokenizer, "template", None) is not None:
        yield "in another template, that of its chats", lambda ids: as_chat(
            tokenizer, ids[len(begin):] if ids[:len(begin)] == begin else ids)


def spelled(tokenizer: Any, ids: list[int]) -> list[int]:
    """Without what begins it, whose name does not stand in a text; nothing if it has no other."""
    names = {token: name for name, token in tokenizer.special.items()}
    begin = len(tokenizer.begin) * (ids[:len(tokenizer.begin)] == [*tokenizer.begin])
    own = [token for one in ids[begin:] for token in (
        tokenizer.continued(names[one]) if one in names else [one])]
    return ids[:begin] + own if own != ids[begin:] else []


def as_chat(tokenizer: Any, ids: list[int]) -> list[int]:
    """A user's first message; nothing where the template refuses it."""
    try:
        return tokenizer.chat([{"role": "user", "content": tokenizer.decode(ids)}])
    except RequestError:
        return []


def penalised(case: Case, penalty: float, logits: Tensor, place: int) -> Tensor:
    """Logits (m, V) from a place on, as a repetition penalty changes them."""
    logits = logits.clone()
    for row, had in zip(logits, range(place, place + len(logits))):
        seen = torch.tensor(sorted({*case.prompt, *case.text.tokens[:had]}), device=row.device)
        row[seen] = repeated(row[seen], penalty)
    return logits


@torch.inference_mode()
def subtracted(target: Any, case: Case, near: float, ends: Sequence[int]
               ) -> dict[tuple[str, bool], tuple[float, float]]:
    """From which to which number a penalty that is subtracted leaves no token further than `near`
    below the best; by its name, and whether the prompt's tokens count. The best ones' logits fall
    evenly as the number grows, so each token is a bound on one side.
    """
    found = {which: (float("-inf"), float("inf"))
             for which in product(("frequency", "presence"), (False, True))}
    generated, of_prompt = torch.zeros(2, target.config.vocab_size, device=target.device).double()
    for token in case.prompt:
        of_prompt[token] += 1
    for logits, own in choices(target, case.prompt, case.text.tokens, ends):
        over = logits - logits.gather(1, own) - near
        new = torch.zeros_like(logits).scatter_(1, own, 1)
        before = generated + new.cumsum(0) - new
        generated = generated + new.sum(0)
        for (name, prompt_counts), (least, most) in found.items():
            counts = before + of_prompt * prompt_counts
            counts = counts.clamp(max=1) if name == "presence" else counts
            more = counts - counts.gather(1, own)       # than the text's own token has
            bounds = over / more
            least = max(least, float(bounds[more > 0].max())) if (more > 0).any() else least
            most = min(most, float(bounds[more < 0].min())) if (more < 0).any() else most
            if (over[more == 0] > 0).any():
                most = float("-inf")
            found[name, prompt_counts] = least, most
    return found


@torch.inference_mode()
def seen_before(target: Any, case: Case, beyond: float, ends: Sequence[int]) -> Iterator[bool]:
    """Of each place where a text is off: whether all tokens that are better have been there before,
    as they must have been if a penalty of whatever kind, number or window moved them.
    """
    seen = torch.zeros(target.config.vocab_size, dtype=torch.bool, device=target.device)
    seen[case.prompt] = True
    for logits, own in choices(target, case.prompt, case.text.tokens, ends):
        for row, token in zip(logits, own[:, 0].tolist()):
            better = row > row[token] + beyond
            if better.any():
                yield bool(seen[better].all())
            seen[token] = True


def shifted(late: Sequence[int], early: Sequence[int], places: int) -> bool:
    """Whether `late` goes on, from where they differ, as `early` does some places later."""
    at = next((i for i, (x, y) in enumerate(zip([*late, None], [*early, None])) if x != y), None)
    if at is None:
        return False
    rest, ahead = late[at:], early[at + places:]
    count = min(len(rest), len(ahead))
    return count >= ALIKE and [*rest[:count]] == [*ahead[:count]]


@torch.inference_mode()
def drawn_at(target: Any, cases: Sequence[Case]) -> float | None:
    """The temperature at which these tokens may have been drawn; None if at none of TEMPERATURES,
    or if they are too few to say.
    """
    values: dict[float, list[Tensor]] = {temperature: [] for temperature in TEMPERATURES}
    # The probability of a token as unlikely as the one that was drawn: it is below x once in 1 / x.
    rarest: dict[float, list[Tensor]] = {temperature: [] for temperature in TEMPERATURES}
    for number, (prompt, text, _) in enumerate(cases):
        u = own_uniforms(0, number, len(text.tokens)).to(target.device)
        tokens = torch.tensor(text.tokens, device=target.device)
        logits = torch.cat([*rows(target, prompt, text.tokens, len(text.tokens))])
        for temperature in TEMPERATURES:
            p_target = Sampling(temperature)(logits)
            values[temperature].append(pit(tokens, p_target, p_target, u))
            own = p_target.gather(1, tokens[:, None])
            rarest[temperature].append((p_target * (p_target <= own)).sum(1).min())
    many = sum(len(case.text.tokens) for case in cases)
    if many < FEWEST:
        return None
    fits = {temperature: min(uniform(drawn).p_value, many * float(min(rarest[temperature])))
            for temperature, drawn in values.items()}
    best = max(TEMPERATURES, key=lambda temperature: fits[temperature])
    return best if fits[best] > MISS else None
