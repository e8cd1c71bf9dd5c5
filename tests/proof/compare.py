"""How the code that ships is compared with what `generate` would have written. checks.py says with which models.

T0  one node: whatever the two distributions, the token that comes out has the target's
T1  one round, completed by the target: the distribution of gamma + 1 tokens
T2  several rounds with the loop itself, settings on: what is carried from round to round, stops, rows of a batch
T3  the real GPT with its real cache and masks; cached distributions against recomputed ones
T5  what leaves the text right and costs only speed: accepted tokens against their expectation
T6  temperature 0: token for token what greedy decoding writes

Every function returns (paths, texts or samples; greatest error; total variation). What is wrong also says where.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle, islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lessons.oracles import expected_accepted, product_of
from nanospec.draft import Draft, Drafter, Rule
from nanospec.generate import generate
from nanospec.methods.draft_models.learned import Learned
from nanospec.methods.draft_models.unrolled import before_tokens, whole_texts
from nanospec.methods.index import RULES
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.probs import Sampling, probs
from nanospec.proof.walk import TOLERANCE, Distribution, distance, target_distribution, walk
from nanospec.serving import rows as batch_rows
from nanospec.speculate import ModelDrafter, Round, one_round, speculate, tokens_of, verify
from nanospec.text import Text, prefill

Found = tuple[int, float, float]
Run = Callable[..., Iterator[Round]]         # (ids, **request), the request as `speculate` takes it
EVERY_RULE: list[Rule] = [verify, verify_tree, *filter(None, RULES.values())]      # the drafters' own, and all others


class Off(tuple):
    """What a check has found, and where it is most off, in words."""

    where = ""

    @staticmethod
    def at(found: Found, where: str) -> "Off":
        off = Off(found)
        off.where = where
        return off


def compared(paths: int, found: Distribution, truth: Distribution, prompt: Any) -> Found:
    """A walked distribution and the true one. The outcome of a batch has a text for each row."""
    off = {outcome: abs(found.get(outcome, 0.0) - truth.get(outcome, 0.0)) for outcome in found.keys() | truth.keys()}
    outcome = max(off, key=off.__getitem__)
    return Off.at((paths, *distance(found, truth)), f"after {prompt} comes {outcome} with a probability of "
                  f"{found.get(outcome, 0.0):.9f}, and {truth.get(outcome, 0.0):.9f} is right")


def worst(parts: Iterable[Found]) -> Found:
    """Several runs of a check as one. The first that is wrong says so alone, and no other is run."""
    total, most, furthest = 0, 0.0, 0.0
    for part in parts:
        count, error, tv = part
        if not (error <= TOLERANCE and tv <= TOLERANCE):        # a nan is wrong, too
            return part
        total, most, furthest = total + count, max(most, error), max(furthest, tv)
    return total, most, furthest


# T0

def node_cases() -> Iterator[tuple[str, Tensor, Tensor]]:
    """(name, p_target, q_draft): random distributions of 5 tokens with zeros, the edges, nearly equal ones."""
    made = torch.Generator().manual_seed(0)
    for i in range(60):
        pair = torch.rand(2, 5, generator=made, dtype=torch.float64) ** 3
        pair = pair * (torch.rand(2, 5, generator=made) > 0.3)
        pair[:, i % 5] += 0.01
        p_target, q_draft = pair / pair.sum(-1, keepdim=True)
        yield "random", p_target, q_draft
    yield "equal", p_target, p_target
    noise = 1 + 1e-16 * torch.tensor([1.0, -3, 2, 0, 5], dtype=torch.float64)
    yield "equal up to rounding", p_target, p_target * noise
    yield "a hair above everywhere", p_target, torch.nextafter(p_target, torch.ones(5, dtype=torch.float64))
    eye = torch.eye(5, dtype=torch.float64)
    yield "disjoint", (eye[0] + eye[1]) / 2, (eye[2] + eye[3]) / 2
    yield "one-hot target", eye[2], q_draft
    yield "one-hot draft", p_target, eye[0] if p_target[0] else eye[1]
    yield "one-hot, the same", eye[4], eye[4]
    yield "one-hot, different", eye[4], eye[1]
    even = torch.full((5,), 0.2, dtype=torch.float64)
    for power in range(3, 12):      # what is left is tiny, and must be drawn from all the same
        yield f"1e-{power} apart", even, even + 10.0 ** -power * torch.tensor([1.0, 1, -1, 2, -3], dtype=torch.float64)


def one_node(p_target: Tensor, q_draft: Tensor, rule: Rule) -> Found:
    """After the draft token comes a one-hot bonus, so that its acceptance can be seen."""
    rows = torch.stack([p_target, torch.eye(5, dtype=torch.float64)[0]])[None]
    q_rows = torch.stack([torch.zeros_like(q_draft), q_draft])[None]

    def play(dice):
        x = int(dice.pick(q_draft[None]))
        accepted, token = rule(Draft(torch.tensor([[0, x]]), q_rows), rows, dice)
        return x if accepted else int(token)

    found, paths = walk(play)
    return paths, *distance(found, dict(enumerate(p_target.tolist())))


def node() -> Found:
    """T0."""
    return worst(one_node(*pair, rule) for _, *pair in node_cases() for rule in EVERY_RULE)


# T1 and T2

def walk_by_prefix(play: Callable[[tuple, int, Any], tuple], new: int) -> tuple[Distribution, int]:
    """The exact distribution of `new` tokens written round by round, by dynamic programming over the committed text.

    play(prefix, left, dice) -> the 1 to `left` tokens one fresh round adds after `prefix`. Far fewer paths than
    `walk`, and blind to whatever is carried from one round to the next: both are used.
    """
    found: Distribution = {(): 1.0}
    paths = 0
    while any(len(prefix) < new for prefix in found):
        longer = defaultdict(float)
        for prefix, weight in found.items():
            if len(prefix) == new:
                longer[prefix] += weight
                continue
            added, walked = walk(lambda dice: play(prefix, new - len(prefix), dice))
            paths += walked
            for tokens, probability in added.items():
                longer[prefix + tokens] += weight * probability
        found = dict(longer)
    return found, paths


def first_round(target, drafter: Drafter, ids, **settings) -> Found:
    """T1. One round, whatever its length, completed by the target to as many tokens as it could have written."""
    new = drafter.most + 1

    def play(dice):
        return tuple(next(speculate(target, drafter, ids, new, dice=dice, **settings)).emitted)
    found, paths = walk(play)
    settings.pop("rule", None)
    truth = target_distribution(target, ids, new, **settings)
    return compared(paths, continued(found, truth), truth, ids)


def continued(found: Distribution, truth: Distribution) -> Distribution:
    """Every shorter outcome in `found` goes on as the true texts that begin with it do. What begins no true text stays
    as it is, and is wrong.
    """
    longer: Distribution = defaultdict(float)
    for tokens, weight in found.items():
        rest = {text: part for text, part in truth.items() if text[:len(tokens)] == tokens} or {tokens: 1.0}
        for text, part in rest.items():
            longer[text] += weight * part / sum(rest.values())
    return dict(longer)


def rounds(target, run: Run, ids, new, **settings) -> Found:
    """T2, T3. The loop itself, from the prompt to the last of `new` tokens, everything carried along."""
    found, paths = walk(lambda dice: tuple(tokens_of(run(ids, max_new_tokens=new, dice=dice, **settings))))
    return compared(paths, found, target_distribution(target, ids, new, **settings), ids)


def rounds_by_prefix(target, drafter: Drafter, ids, new, **settings) -> Found:
    """T2. Larger: every round starts afresh from what is committed."""
    def play(prefix, left, dice):
        return tuple(next(speculate(target, drafter, [*ids, *prefix], left, dice=dice, **settings)).emitted)
    found, paths = walk_by_prefix(play, new)
    return compared(paths, found, target_distribution(target, ids, new, **settings), ids)


class Batch:
    """Texts as rows of one batch, `one_round` after `one_round`. room: tokens that each may grow by."""

    def __init__(self, target, drafter: Drafter, prompts: Sequence[Sequence[int]], room: int):
        self.target, self.drafter = target, drafter
        self.text = Text(prompts, room, target.config.vocab_size, target.device)
        self.cache, hidden = prefill(self.target, self.text, drafter.layers)
        drafter.begin(self.text)
        drafter.read(self.text, range(len(prompts)), hidden)

    def begin_anew(self, b: int, ids: Sequence[int]) -> None:
        """Row b gets a new request, while the others go on."""
        self.text.tokens[b, :len(ids)], self.text.length[b] = torch.tensor(ids), len(ids)
        self.cache, hidden = prefill(self.target, self.text, self.drafter.layers, self.cache, [b])
        self.drafter.read(self.text, [b], hidden)

    def round(self, dice, sampling: Callable, rule: Rule | None = None) -> tuple[Draft, Tensor, Tensor, Tensor, Tensor]:
        """What `one_round` returns."""
        dice.refill(self.drafter.uniforms + self.drafter.most + 1)
        return one_round(self.target, self.cache, self.drafter, rule or self.drafter.rule or verify, self.text,
                         sampling, dice, int(self.text.length.max()) + self.drafter.most)


def together(target, drafter: Drafter, prompts, new, dice, sampling: Callable | None = None,
             rule: Rule | None = None) -> list[list[int]]:
    """The prompts as rows of one batch, `one_round` after `one_round`: of every row its first `new` tokens."""
    batch = Batch(target, drafter, prompts, (drafter.most + 1) * (new + 1))
    starts = [len(ids) for ids in prompts]
    while min(n - start for n, start in zip(batch.text.length.tolist(), starts)) < new:
        batch.round(dice, sampling or Sampling(), rule)
    return [row[start:start + new] for row, start in zip(batch.text.tokens.tolist(), starts)]


def ragged(target, drafter: Drafter, prompts, new, rule: Rule | None = None,
           settings: Sequence[dict] = ({}, {})) -> Found:
    """T2, T3. Prompts of different lengths as rows of one batch, each with settings of its own: the joint distribution
    is the product of the rows' own.
    """
    sampling = batch_rows.SamplingByRow([Sampling(**row) for row in settings])

    def play(dice):
        return tuple(map(tuple, together(target, drafter, prompts, new, dice, sampling, rule)))

    found, paths = walk(play)
    truth = product_of(*(target_distribution(target, ids, new, **row) for ids, row in zip(prompts, settings)))
    return compared(paths, found, truth, [list(ids) for ids in prompts])


# T3

def recomputed(target, draft_model, whole: Tensor, length: int) -> list[Tensor]:
    """The logits of both models, of the target alone if `draft_model` is None, after the first `length` tokens of (B,
    T), and after every later one, without a cache: (B, T - length + 1, V). A learned draft model knows the target's
    hidden states of the first `length` - 1 tokens, no more.
    """
    if not isinstance(draft_model, Learned):
        return [model(whole)[:, length - 1:] for model in (target, draft_model) if model]
    logits, hidden = target(whole, layers=draft_model.layers)
    before = before_tokens(hidden)
    before[:, length:] = 99.0                           # a model that reads it predicts something else
    own = whole_texts(draft_model, whole, before, whole.shape[1] - length + 1)[:, :, -1].transpose(0, 1)
    return [logits[:, length - 1:], own]


def caches(target, draft_model, drafter: Drafter, prompts, new, rule: Rule | None = None, copies: bool = False,
           best: bool = False, must_see: Callable = lambda done: len(done.path) == len(done.tokens) - 1,
           **settings) -> Found:
    """T3. In every round of long runs, the target's distribution after every node, and the draft model's for every
    first child, against those recomputed without a cache from the node's own path: what a mask, a position, a slot or a
    roll-back could spoil. The only check that sees a draft model's cache which misses a token: the text stays right,
    only speed is lost. copies: some tokens were copied, their q_draft is one-hot. best: a first child is not drawn, but
    the draft model's best token. must_see: a round that has to occur.
    """
    count, error, seen, where = 0, 0.0, False, ""

    def furthest(off: Tensor, nodes: list[int], name: str) -> None:
        """Note the node whose distribution is furthest off."""
        nonlocal error, where
        most, at = off.abs().amax(-1).max(0)
        if not (float(most) <= error or error != error):        # a nan stays
            error, node = float(most), nodes[int(at)]
            where = f"the {name} of node {node}, {done.tokens[node]}, of {done.tokens} after {text}"

    for seed, ids in enumerate(prompts):
        text = list(ids)
        for done in speculate(target, drafter, ids, new, seed=seed, rule=rule, **settings):
            paths = [[0]]                               # of every node, the nodes from the root to it
            for node, parent in enumerate(done.parents[1:], 1):
                paths.append([*paths[parent], node] if parent >= 0 else [])
            leaves = [path for node, path in enumerate(paths) if path and node not in done.parents]
            longest = max(map(len, leaves))
            whole = torch.tensor([text + [done.tokens[node] for node in path[1:]] + [0] * (longest - len(path))
                                  for path in leaves])
            after = [probs(logits, **settings) for logits in recomputed(target, draft_model, whole, len(text))]
            compared = {node for node, parent in enumerate(done.parents) if node and draft_model
                        and done.parents.index(parent) == node
                        and not (copies and done.q_draft[node, done.tokens[node]] == 1)}
            for leaf, path in enumerate(leaves):
                if path[0]:
                    return count, 1.0, 1.0                  # a node whose parent does not exist
                furthest(after[0][leaf, :len(path)] - done.p_target[path], path, "p_target")
                depths = [depth for depth, node in enumerate(path) if node in compared]
                if depths:
                    own = after[1][leaf, [depth - 1 for depth in depths]]
                    own = F.one_hot(own.argmax(-1), own.shape[-1]) if best else own
                    those = [path[depth] for depth in depths]
                    furthest(own - done.q_draft[those], those, "q_draft")
            text, count, seen = text + done.emitted, count + 1, seen or must_see(done)
    if error <= TOLERANCE and not seen:
        raise LookupError("no round was of the kind that this check is for: what it leaves was not seen")
    return Off.at((count, error, error), where)


# T5

def speed(target, draft_model, **settings) -> Found:
    """T5. Draft tokens accepted in the second round, after every text the first can leave, against their exact
    expectation.
    """
    ids, gamma = [1, 0], 2

    def play(dice):
        run = speculate(target, ModelDrafter(draft_model, gamma), ids, 4 * gamma, dice=dice, **settings)
        first, second = islice(run, 2)
        return tuple(first.emitted), len(second.path)

    found, paths = walk(play)
    weight, accepted = defaultdict(float), defaultdict(float)
    for (text, n), probability in found.items():
        weight[text] += probability
        accepted[text] += probability * n
    error = max(abs(accepted[text] / weight[text] - expected_accepted(target, draft_model, [*ids, *text], gamma,
                                                                      **settings))
                for text in weight)
    return paths, error, error


def prompts_of(vocab_size: int, count: int, longest: int) -> list[list[int]]:
    """Random prompts of 1 to `longest` tokens."""
    made = torch.Generator().manual_seed(count)
    return [torch.randint(vocab_size, (1 + i % longest,), generator=made).tolist() for i in range(count)]


# T6

def greedy(target, runs: Sequence[Run], prompts, new) -> Found:
    """T6. The share of texts that differ from plain greedy decoding; 0 or nothing."""
    wrong = [ids for run, ids in zip(cycle(runs), prompts)
             if tokens_of(run(ids, max_new_tokens=new, temperature=0)) != list(generate(target, ids, new, 0))]
    share = len(wrong) / len(prompts)
    return Off.at((len(prompts), share, share), f"after {wrong[:1]} and {len(wrong)} prompts in all another text")
