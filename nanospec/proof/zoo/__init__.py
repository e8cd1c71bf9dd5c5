"""The zoo: bugs that really shipped in public implementations, planted here one at a time, each as the smallest change
to the lines that ship, and each caught by the check that claims it. Beside them the controls: changes that look like
bugs and are exactly lossless, which every check must pass.

A bug is a few words of source exchanged for others. `planted` swaps the compiled code of the functions it touches, in
place, and puts it back: every check then runs the very functions it always runs.

A bug whose check is "T3 cache" costs only speed: its text is exact, and no walk of the text can see it. Bugs of trees
are in wings.py. What is not here: bugs of heads, other requests in the batch and sliding windows, until the
project has those.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType

from nanospec.proof.checks import CATCHERS
from nanospec.proof.checks import TOLERANCE


@dataclass(frozen=True)
class Bug:
    """old -> new in one file of nanospec. caught_by names a check of catchers.py; a control has none."""

    name: str
    source: str                 # where it shipped
    what: str                   # what was done wrong, in one sentence
    caught_by: str
    file: str                   # of nanospec, without its ending: speculate, rules.tree
    edits: tuple[tuple[str, str], ...]


RATIO = "p_target[:, :-1].gather(-1, at) / q_draft.gather(-1, at)"
COIN = "dice.flip(ratio[:, :, 0].clamp(max=1))"
RESIDUAL = "(p_there - q_there).clamp(min=0)"
THERE = "p_there, q_there = p_target[row, kept], q_draft[row, kept]"
SCORE = "p_target = law(target(block, cache, upto))"
ROLL_BACK = "cache.length = text.length - 1     "
DRAW = "drafted.append(dice.pick(q_draft[-1]))"
REPORT = "q_draft.append(law(self.draft(feed, self.cache, upto)[:, -1]))"
CUT = "emitted, stopped = until(guesses[:n] + [last], stop)"


def _bug(name: str, source: str, what: str, caught_by: str, *edits: tuple[str, str], file: str = "speculate") -> Bug:
    return Bug(name, source, what, caught_by, file, edits)


BUGS = [
    # acceptance
    _bug("ratio-flipped", "feifeibear/LLMSpeculativeSampling@9f5d2e5", "the coin's odds are q_draft / p_target", "T0",
         (RATIO, "q_draft.gather(-1, at) / p_target[:, :-1].gather(-1, at)")),
    _bug("accept-everything", "huggingface/transformers#28508, vllm-ascend#13730", "every guess is kept", "T0",
         (COIN, "dice.flip(ratio[:, :, 0].clamp(min=1, max=1))")),
    _bug("logits-as-probabilities", "dust-tt/llama-ssp@b9c92d4", "the target's softmax is missing", "T1",
         (SCORE, "p_target = target(block, cache, upto)")),
    _bug("only-first-test-counts", "lucidrains/speculative-decoding@a536030",
         "the search for the first refusal runs along an axis of size 1", "T1",
         ("survives.long().cumprod(-1)", "survives[:, :1].expand_as(survives).long()")),
    _bug("keep-after-a-refusal", "generic", "guesses behind a refused one are counted too", "T1",
         (".long().cumprod(-1).sum(-1)", ".long().sum(-1)")),
    _bug("uniform-can-be-zero", "the comment in vLLM's sampler; Sequoia", "u <= prob keeps a forbidden token at u = 0",
         "support", ("self._take(prob.shape[1]) < prob", "self._take(prob.shape[1]) <= prob"), file="dice"),
    # residual
    _bug("residual-is-target", "romsto/Speculative-Decoding@0b1fa52", "the replacement is drawn from p_target", "T0",
         (RESIDUAL, "p_there")),
    _bug("residual-softmaxed", "transformers#28508, feifeibear@3505d00", "softmax of the residual, not its sum", "T0",
         (RESIDUAL, "(p_there - q_there).clamp(min=0).softmax(-1)")),
    _bug("residual-pointwise", "SafeAILab/EAGLE@2f982e2, xllm#2175", "q_draft is subtracted at the drafted token only",
         "T0", (RESIDUAL, "torch.where(torch.arange(p_there.shape[1]) == F.pad(drafted, (0, 1))[row, kept][:, None], "
                          "p_there - q_there, p_there).clamp(min=0)")),
    _bug("residual-absolute", "generic", "|p_target - q_draft|", "T0", (RESIDUAL, "(p_there - q_there).abs()")),
    _bug("residual-argmax", "generic", "the replacement is the residual's likeliest token", "T0",
         (RESIDUAL, "F.one_hot((p_there - q_there).argmax(-1), p_there.shape[1]).to(p_there)")),
    _bug("warp-residual-again", "Lightning-AI/litgpt", "temperature is applied to the residual once more", "T0",
         (RESIDUAL, "(p_there - q_there).clamp(min=0) ** (1 / 0.7)")),
    _bug("zero-residual-nan", "Sequoia; MTPLX#82", "p = q up to rounding leaves 0/0", "T0",
         ("torch.where(nothing_left, p_there, residual)", "residual")),
    # p or q is not the law that was used
    _bug("greedy-draft-soft-q", "jaymody/speculative-sampling@ffa233e, transformers#33534",
         "the draft takes its argmax and reports a softmax", "T1", (DRAW, "drafted.append(q_draft[-1].argmax(-1))")),
    _bug("draft-warped-q-raw", "transformers#47932", "drawn from the warped law, reported without top-k", "T2 settings",
         (REPORT, "q_draft.append(probs(self.draft(feed, self.cache, upto)[:, -1]))"),
         (DRAW, "drafted.append(dice.pick(law(q_draft[-1].log())))")),
    _bug("target-unwarped", "vllm#9834", "temperature and top-k are applied to the draft only", "T2",
         (SCORE, "p_target = probs(target(block, cache, upto))")),
    _bug("processors-only-on-bonus", "vllm#42744, sglang#10617", "only the last row is warped", "T2",
         (SCORE, "p_target = target(block, cache, upto); p_target = torch.cat([probs(p_target[:, :-1]), "
                 "law(p_target[:, -1:])], 1)")),
    _bug("draft-dtype-mismatch", "deepseek-ai/DeepSpec#31", "drawn in low precision, judged in high", "T1",
         (DRAW, "drafted.append(dice.pick(q_draft[-1].half()))")),
    # rows and the bonus token
    _bug("resample-from-last-row", "romsto@53922df", "the replacement comes from the last row", "T1",
         (THERE, "p_there, q_there = p_target[row, -1], q_draft[row, kept]")),
    _bug("row-before", "generic", "the replacement comes from the row before", "T1",
         (THERE, "p_there, q_there = p_target[row, (kept - 1).clamp(min=0)], q_draft[row, kept]")),
    _bug("bonus-from-draft", "generic", "the last draft's law stays in the bonus", "T1",
         ("F.pad(q_draft, (0, 0, 0, 1))", "torch.cat([q_draft, q_draft[:, -1:]], 1)")),
    _bug("bonus-unwarped", "SafeAILab/EAGLE until bf10ac5", "the bonus is drawn without temperature", "T2",
         (SCORE, "p_target = target(block, cache, upto); p_target = torch.cat([law(p_target[:, :-1]), "
                 "probs(p_target[:, -1:])], 1)")),
    _bug("first-token-lost", "litgpt#2307", "the first token of the answer is dropped", "T2",
         ("emitted = emitted[:left]", "emitted = emitted[left == max_new_tokens:left]")),
    _bug("rejected-kept", "lucidrains#3", "the text is not cut at the refusal", "T2",
         (CUT, "emitted, stopped = until(guesses + [last], stop)")),
    # randomness
    _bug("residual-reuses-accept-uniform", "vllm#47386, vllm-ascend#16370, flashinfer#424",
         "the draw from the residual takes the uniform its coin fell by", "ledger",
         ("cumulative = weights", "self.column -= min(1, self.column); cumulative = weights"), file="dice"),
    _bug("reseed-per-draw", "feifeibear", "every round starts the generator anew", "ledger",
         ("torch.rand(columns, generator=g", "torch.rand(columns, generator=g.manual_seed(0)"), file="dice"),
    _bug("seed-ignored", "vllm#6038, vllm#10863", "the seed is not handed on", "reports",
         ("torch.Generator().manual_seed(seed)", "torch.Generator().manual_seed(torch.seed() % 2 ** 31)"), file="dice"),
    # caches
    _bug("target-not-rolled-back", "generic; lucidrains@3194f53, mlx-lm#1109",
         "refused tokens stay in the target's cache", "T2",
         (ROLL_BACK, "cache.length = cache.length + gamma + 1 if cache.length.any() else text.length - 1     ")),
    _bug("rolled-back-one-too-few", "generic", "one refused token stays in the target's cache", "T1",
         (ROLL_BACK, "cache.length = text.length     ")),
    _bug("draft-missing-last-accepted", "xllm#960, vllm#5765, vllm-metal#716",
         "after a round in which all was kept the draft never read its own last guess", "T3 cache",
         ("feed = text.last(2)\n        self.cache.length = text.length - 2",
          "feed = text.last(1)\n        self.cache.length = text.length - 1")),
    _bug("prefix-fed-again", "feifeibear@81f7c13, romsto#1", "the last token is fed to a cache that has it", "T1",
         ("block = torch.cat([text.last(1), drafted], 1)  ", "block = torch.cat([text.last(2)[:, :1], drafted], 1)  ")),
    # stopping, reports, rows
    _bug("eos-inside-block", "transformers#47912, romsto@97b82fb", "only a round's last token is looked at", "T2 stop",
         (CUT, "emitted, stopped = guesses[:n] + [last], last in stop")),
    _bug("overshoot", "litgpt#2308", "up to gamma tokens more than asked for", "reports",
         ("emitted = emitted[:left]", "emitted = emitted"),
         ("left = 0 if stopped else left - len(emitted)", "left = 0 if stopped else max(0, left - len(emitted))")),
    _bug("counted-after-the-refusal", "vllm#2658, sglang#11572", "kept counts coins behind the refusal", "reports",
         ("yield Round(guesses, n,", "yield Round(guesses, n + guesses[n + 1:].count(guesses[-1]),")),
    _bug("cross-row-write", "flash-attention#2779", "an index meant for one row is used for every row", "T2 rows",
         ("self.length[:, None] + self._count[:block.shape[1]]", "self.length[:1, None].expand(len(self.length), 1) + "
          "self._count[:block.shape[1]]"), file="generate"),
    # lossy by design, wrong only when called lossless
    _bug("lenience", "Leviathan et al. A.5", "the coin's odds are min(1, p / (0.8 q))", "T0",
         (COIN, "dice.flip((ratio[:, :, 0] / 0.8).clamp(max=1))")),
    _bug("threshold-acceptance", "sglang's threshold_acc", "a guess of p_target above 0.5 is kept", "T0",
         (COIN, "dice.flip(ratio[:, :, 0].clamp(max=1) + (p_target[:, :-1].gather(-1, at)[:, :, 0] > 0.5))")),
]

CONTROLS = [
    _bug("argmax-draft-one-hot-q", "transformers, prompt lookup", "the argmax is drafted and reported as certain", "",
         (REPORT, "q_draft.append(law(self.draft(feed, self.cache, upto)[:, -1])); "
                  "q_draft[-1] = F.one_hot(q_draft[-1].argmax(-1), q_draft[-1].shape[-1]).to(q_draft[-1])")),
    _bug("soft-draft-judged-as-one-hot", "vLLM without draft probabilities",
         "drawn from q_draft, kept with p_target(x), replaced from p_target without x", "",
         ("at = drafted[:, :, None]",
          "at = drafted[:, :, None]; q_draft = F.one_hot(drafted, q_draft.shape[-1]).to(q_draft)")),
    _bug("no-bonus", "some trees", "where all guesses were kept, nothing follows the last", "",
         (".long().cumprod(-1).sum(-1)", ".long().cumprod(-1).sum(-1).clamp(max=survives.shape[1] - 1)"),
         (RESIDUAL, "torch.where((survives.all(-1))[:, None], F.one_hot(drafted[:, -1], p_there.shape[1]).to(p_there), "
                    "(p_there - q_there).clamp(min=0))")),
    _bug("unnormalised-residual", "many", "weights of any total go to a sampler that normalises", "",
         ("torch.where(nothing_left, p_there, residual)", "torch.where(nothing_left, p_there, residual * 7)")),
    _bug("sample-and-match", "transformers without candidate logits",
         "a target sample decides: a guess that equals it is kept, otherwise the sample is emitted", "",
         (COIN, "(drawn := dice.pick(p_target[0, :-1])[None]) == drafted"),
         (RESIDUAL, "torch.where((kept < drafted.shape[1])[:, None], F.one_hot(F.pad(drawn, (0, 1))[row, kept], "
                    "p_there.shape[1]).to(p_there), p_there)")),
]


@dataclass
class Sighting:
    """What one check found of one bug. tv: the exact total variation, of violations where the check counts those, or
    None where the code fell over."""

    caught: bool
    tv: float | None
    found: str


def look(bug: Bug, check: str) -> Sighting:
    """Plant the bug and run the check of that name."""
    with planted(bug):
        try:
            _, error, tv = CATCHERS[check]()
        except (AssertionError, IndexError, RuntimeError) as fell:
            return Sighting(True, None, f"fell over: {str(fell).splitlines()[0][:60]}")
    return Sighting(not error <= TOLERANCE, tv, f"{tv:.2g}")


def changed(bug: Bug) -> dict:
    """The names of the bug's file, run anew with the bug in it; the file that ships is left alone."""
    module = import_module(f"nanospec.{bug.file}")
    source = inspect.getsource(module)
    for old, new in bug.edits:
        if source.count(old) != 1:
            raise LookupError(f"{bug.name}: the line it changes is no longer there, or not alone: {old!r}")
        source = source.replace(old, new)
    names = {"__name__": module.__name__}
    exec(compile(source, f"<{bug.name}>", "exec"), names)
    return names


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Within it, the functions of the bug's file, wherever they are called, run with the bug in them."""
    module = import_module(f"nanospec.{bug.file}")
    twins = [(ours, ours.__code__, theirs.__code__)
             for ours, theirs in _twins(vars(module), changed(bug), module.__name__)]
    try:
        for function, _, with_the_bug in twins:
            function.__code__ = with_the_bug
        yield
    finally:
        for function, as_it_ships, _ in twins:
            function.__code__ = as_it_ships


def _twins(ours: dict, theirs: dict, module: str) -> Iterator[tuple[FunctionType, FunctionType]]:
    """The functions and methods of a module beside those of its changed copy."""
    for name, thing in list(ours.items()):
        if getattr(thing, "__module__", None) != module:
            continue
        if inspect.isclass(thing):
            yield from _twins(dict(vars(thing)), vars(theirs[name]), module)
        elif inspect.isfunction(thing) and name in theirs and not name.startswith("__") or name == "__init__":
            a, b = inspect.unwrap(thing), inspect.unwrap(theirs[name])
            if len(a.__code__.co_freevars) == len(b.__code__.co_freevars):
                yield a, b
