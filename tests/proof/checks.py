"""The checks: one list for `python -m tests.proof`, for the tests, and for the zoo's bugs, which name the one that
catches them. What every drafter and rule goes through by its name is in contract.py.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from lessons.cascade import DEFERRALS, cascade
from lessons.oracles import Mixture
from lessons.recurrent import small_recurrent
from nanospec.methods.copies.lookup import PromptLookup
from nanospec.methods.copies.suffix import SuffixDrafter
from nanospec.methods.index import DRAFTERS, Options, method_of
from nanospec.methods.lengths.by_survival import BySurvival
from nanospec.methods.wrappers.grammar import Constrained, Grammar
from nanospec.methods.wrappers.penalties import Penalised
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.proof.tables import DRAFT_MODEL, TABLE, TableModel, small_gpt, small_learned
from nanospec.proof.walk import TOLERANCE
from nanospec.speculate import ModelDrafter, speculate
from tests.proof.compare import (EVERY_RULE, Found, Run, caches, first_round, greedy, node, prompts_of, ragged, rounds,
                                 rounds_by_prefix, speed, worst)
from tests.proof.handover import (by_hand, drafts, hidden_states, ledger, one_after_the_other, reports, rules_agree,
                                  support)
from tests.proof.learning import heads, labels, vocabulary
from tests.proof.other_tokenizer import drafted, walked
from tests.proof.served import joint, schedules


@dataclass(frozen=True)
class Check:
    """name: what a bug of the zoo says. slow: only in `python -m tests.proof`, because without it every bug and
    mutant is still caught."""

    layer: str
    name: str
    setting: str
    run: Callable[[], Found]
    slow: bool = False


@dataclass
class Result:
    """What a check found."""

    check: Check
    count: int
    error: float
    tv: float
    seconds: float

    @property
    def passed(self) -> bool:
        return self.error <= TOLERANCE and self.tv <= TOLERANCE         # a nan passes neither


def result_of(check: Check) -> Result:
    began = time.perf_counter()
    return Result(check, *check.run(), time.perf_counter() - began)


def chain(target, draft_model, gamma: int) -> Run:
    return method_of(target, draft_model, gamma=gamma).run


def tree(target, draft_model, topology, independent=False, rule="token") -> Run:
    return method_of(target, draft_model, "independent" if independent else "tree", rule, topology=topology).run


TWO, TWO_ONE, TWO_TWO = [-1, 0, 0], [-1, 0, 0, 1], [-1, 0, 0, 1, 1, 2, 2]
TABLE3, DRAFT_MODEL3 = TableModel(3, 1), TableModel(3, 2)
TABLE4, DRAFT_MODEL4 = TableModel(4, 3), TableModel(4, 4)
FULL, FULL_DRAFT_MODEL = TableModel(3, 5, zeros=0), TableModel(3, 6, zeros=0)
BLOCK, BLOCK_DRAFT_MODEL = TableModel(3, 238, zeros=0.15), TableModel(3, 338, zeros=0.15)
DEEP, DEEP_DRAFT_MODEL = TableModel(3, 84, zeros=0.15), TableModel(3, 184, zeros=0.15)
GPT3, GPT_DRAFT_MODEL3 = small_gpt(3, 2, 1), small_gpt(3, 1, 2)
GPT4, GPT_DRAFT_MODEL4 = small_gpt(4, 2, 3), small_gpt(4, 1, 4)
GPT11 = [(small_gpt(11, 2, seed), small_gpt(11, 1, seed + 1)) for seed in (10, 20)]
# Replay, and a state for every node of a draft of two tokens. A target of one layer with a state and one that attends.
STATES = [(small_recurrent(3, 2, 1, (1,), kept), small_recurrent(3, 1, 2, (), kept)) for kept in (None, 3)]
TIED, TIED_DRAFT_MODEL = (TableModel(4, seed, zeros=0, ties=True) for seed in (4, 104))
WARM: dict = {"temperature": 0.7}
# At these costs it copies after some texts and drafts after others.
COSTS = 0.12, {2: 1.1, 3: 1.2}
HYBRID, FULL_HYBRID = (method_of(target, draft_model, "hybrid", gamma=2, costs=COSTS)
                       for target, draft_model in ((TABLE, DRAFT_MODEL), (FULL, FULL_DRAFT_MODEL)))
# Four states, each of which forbids another token or two.
RULED = Grammar(torch.tensor([[1, -1, 2], [-1, 0, 2], [3, 1, -1], [-1, -1, 0]]))
PENALTIES = {"repetition": 1.5, "presence": 0.4, "frequency": 0.7}
PENALISED = Penalised(TABLE, **PENALTIES), Penalised(DRAFT_MODEL, **PENALTIES)
TOGETHER = [(0, None, None, None), (0.2, None, None, None), (0.7, 1, None, None), (0.7, None, 0.5, None),
            (0.7, 3, 0.6, None), (1.3, 3, 0.7, None), (0.7, None, None, 0.2), (1.3, 3, 0.9, 0.6)]


def nearly(seed: int, by: float) -> TableModel:
    """The table of this seed, its logits off by about `by`."""
    table = TableModel(3, seed, zeros=0)
    table.logits = table.logits + by * TableModel(3, seed + 1, zeros=0).logits
    return table


def through_a_second_child(done) -> bool:
    return len(done.path) > 1 and done.path[0] > 1


CHECKS = {check.name: check for check in [
    Check("T0", "T0", "77 pairs of distributions: zeros, equal, disjoint, one-hot, nearly equal; every rule", node),
    Check("T1", "T1", "table V4 gamma 2, prompt of 3, T 0.7",
          lambda: first_round(TABLE4, ModelDrafter(DRAFT_MODEL4, 2), [1, 3, 0], **WARM)),
    Check("T1", "T1 gamma 3", "table V3 gamma 3, prompt of 1, no zeros",
          lambda: first_round(FULL, ModelDrafter(FULL_DRAFT_MODEL, 3), [2]), slow=True),
    Check("T1", "T1 together", "table V4 with ties, gamma 1: temperature, top-k, top-p, min-p at once", lambda: worst(
        first_round(TIED, ModelDrafter(TIED_DRAFT_MODEL, 1), ids, temperature=temperature, top_k=top_k, top_p=top_p,
                    min_p=min_p)
        for temperature, top_k, top_p, min_p in TOGETHER for ids in ([1, 0], [3], [2, 2], [0]))),
    Check("T1", "T1 nearly equal", "table V3 gamma 2, a draft model 1e-4, 1e-7, 1e-10 off; every rule", lambda: worst(
        first_round(FULL, ModelDrafter(nearly(5, by), 2), [1, 0], rule=rule)
        for by in (1e-4, 1e-7, 1e-10) for rule in EVERY_RULE)),
    Check("T2", "T2", "table V3 gamma 2, 4 tokens, T 0.7",
          lambda: rounds(TABLE, chain(TABLE, DRAFT_MODEL, 2), [1, 0], 4, **WARM), slow=True),
    Check("T2", "T2 no zeros", "table V3 gamma 2, 4 tokens, T 0.7, no zeros",
          lambda: rounds(FULL, chain(FULL, FULL_DRAFT_MODEL, 2), [1, 0], 4, **WARM), slow=True),
    Check("T2", "T2 settings", "table V4 gamma 2, 4 tokens, T 1.3, top-k 2",
          lambda: rounds(TABLE4, chain(TABLE4, DRAFT_MODEL4, 2), [0, 1], 4, temperature=1.3, top_k=2), slow=True),
    Check("T2", "T2 top-p", "table V4 gamma 2, 4 tokens, T 1.2, top-p 0.7",
          lambda: rounds(TABLE4, chain(TABLE4, DRAFT_MODEL4, 2), [3, 3], 4, temperature=1.2, top_p=0.7), slow=True),
    Check("T2", "T2 stop", "table V3 gamma 2, 4 tokens, end of text is token 0, T 0.7",
          lambda: rounds(TABLE, chain(TABLE, DRAFT_MODEL, 2), [1, 2], 4, stop={0}, **WARM), slow=True),
    Check("T2", "T2 by prefix", "table V4 gamma 3, 5 tokens, T 0.7, by prefix",
          lambda: rounds_by_prefix(TABLE4, ModelDrafter(DRAFT_MODEL4, 3), [1, 3], 5, **WARM), slow=True),
    Check("T2", "T2 rows", "table V3 gamma 1, rows of 1 and 4, 2 tokens, T 0.7 and top-k 2",
          lambda: ragged(TABLE, ModelDrafter(DRAFT_MODEL, 1), [[1], [0, 2, 1, 1]], 2, settings=[WARM, {"top_k": 2}])),
    Check("T2", "T2 one greedy", "table V3 gamma 1, rows of 1 and 4, 2 tokens, T 0 and T 0.7",
          lambda: ragged(TABLE, ModelDrafter(DRAFT_MODEL, 1), [[1], [0, 2, 1, 1]], 2,
                         settings=[{"temperature": 0}, WARM])),
    Check("T2", "tree", "tree 2-1, V3, 3 tokens, T 0.7, without replacement",
          lambda: rounds(TABLE3, tree(TABLE3, DRAFT_MODEL3, TWO_ONE), [1, 0], 3, **WARM), slow=True),
    Check("T2", "tree, independent", "tree 2, V3, 3 tokens, T 0.7, independent, no zeros",
          lambda: rounds(FULL, tree(FULL, FULL_DRAFT_MODEL, TWO, independent=True), [1, 0], 3, **WARM), slow=True),
    Check("T2", "tree rows", "tree 2, rows of 1 and 3, 2 tokens, T 0.7 and top-k 2", lambda: ragged(
        TABLE, TreeDrafter(DRAFT_MODEL, TWO), [[1], [0, 2, 1]], 2, settings=[WARM, {"top_k": 2}]), slow=True),
    Check("T2", "tree of 3", "tree 3, V4, 2 tokens, T 1.3, top-k 3", lambda: rounds(
        TABLE4, tree(TABLE4, DRAFT_MODEL4, [-1, 0, 0, 0]), [0, 1], 2, temperature=1.3, top_k=3)),
    Check("T2", "block", "block verification of 2, V3, 3 tokens",
          lambda: rounds(BLOCK, method_of(BLOCK, BLOCK_DRAFT_MODEL, rule="block", gamma=2).run, [1, 0], 3), slow=True),
    Check("T2", "traversal", "traversal of 2-1, V3, 3 tokens",
          lambda: rounds(DEEP, tree(DEEP, DEEP_DRAFT_MODEL, TWO_ONE, rule="traversal"), [1, 0], 3), slow=True),
    Check("T2", "dynamic", "stop after an unlikely token, V3, 2 tokens, T 0.7", lambda: rounds(
        TABLE3, method_of(TABLE3, DRAFT_MODEL3, "confidence", gamma=2).run, [1, 0, 1, 2, 1], 2, **WARM)),
    Check("T2", "hybrid", "copies and chains of 2, V3, 3 tokens, 2 without zeros, T 0.7; rows of 3 and 4, 2 tokens",
          lambda: worst(part() for part in [
              *[partial(ragged, TABLE, HYBRID.make(), [[1, 0, 2], [0, 2, 0, 2]], 2, settings=settings)
                for settings in ([WARM | {"top_k": 2}, {"temperature": 0}], [{"temperature": 0}, {"top_k": 2}])],
              partial(rounds, TABLE, HYBRID.run, [1, 0, 1, 2, 1], 3, **WARM),
              partial(rounds, FULL, FULL_HYBRID.run, [1, 0, 1, 2, 1], 2, **WARM)])),
    Check("T2", "cascade", "a chain and a tree, V3, 2 tokens, against mixtures of four deferral rules",
          lambda: worst(rounds(Mixture(TABLE, DRAFT_MODEL, partial(DEFERRALS[name], a=a)),
                               partial(speculate, TABLE, drafter, rule=cascade(name, a, verify_tree)), [1, 0, 1], 2)
                        for drafter in (ModelDrafter(DRAFT_MODEL, 2), TreeDrafter(DRAFT_MODEL, TWO_ONE))
                        for name, a in (("chow", 0.4), ("opt", 0.6), ("v1", 0.3), ("v3", 0.6)))),
    Check("T2", "grammar", "a chain, a tree 2-1 and copies under a grammar, V3, 3 tokens, T 0.7", lambda: worst(
        rounds(Constrained(FULL, RULED), method_of(Constrained(FULL, RULED), Constrained(FULL_DRAFT_MODEL, RULED), name,
               gamma=2, topology=TWO_ONE).run, [1, 0, 1, 2, 1], 3, **WARM) for name in ("chain", "tree", "lookup"))),
    Check("T2", "penalties", "a chain, a tree 2-1 and copies with three penalties, V3, 3 tokens, T 0.7, top-k 2",
          lambda: worst(rounds(PENALISED[0], method_of(*PENALISED, name, gamma=2, topology=TWO_ONE).run,
                               [1, 0, 1, 2, 1], 3, top_k=2, **WARM) for name in ("chain", "tree", "lookup"))),
    Check("T2", "another tokenizer", "a chain, a tree, strings of a draft model with another tokenizer, V6 and V4, 3 "
          "tokens, T 0.7, top-k 2; T 0, 6 tokens, of the tree 3", walked),
    Check("T3", "T3 walk", "GPT V4 gamma 2, 3 tokens, T 0.7, top-k 2",
          lambda: rounds(GPT4, chain(GPT4, GPT_DRAFT_MODEL4, 2), [1, 3, 0], 3, top_k=2, **WARM), slow=True),
    Check("T3", "T3 rows", "GPT V4 gamma 1, rows of 1 and 3, 2 tokens, top-k 2", lambda: ragged(
        GPT4, ModelDrafter(GPT_DRAFT_MODEL4, 1), [[2], [1, 3, 0]], 2, settings=[{**WARM, "top_k": 2}] * 2), slow=True),
    Check("T3", "T3 tree", "tree 2, GPT V3, 3 tokens, T 0.7",
          lambda: rounds(GPT3, tree(GPT3, GPT_DRAFT_MODEL3, TWO), [2, 0], 3, **WARM), slow=True),
    Check("T3", "T3 cache", "chain of 3, GPT V4: cached = recomputed, 3 texts", lambda: caches(
        GPT4, GPT_DRAFT_MODEL4, ModelDrafter(GPT_DRAFT_MODEL4, 3), prompts_of(4, 3, 5), 40, **WARM)),
    Check("T3", "tree caches", "tree 2-2, GPT V4: every node = its own path, 3 texts", lambda: caches(
        GPT4, GPT_DRAFT_MODEL4, TreeDrafter(GPT_DRAFT_MODEL4, TWO_TWO), prompts_of(4, 3, 5), 30,
        must_see=through_a_second_child, **WARM)),
    Check("T3", "states", "recurrent states, kept in both ways, V3 gamma 2, 2 tokens, T 0.7, top-k 2", lambda: worst(
        rounds(target, chain(target, draft_model, 2), [1, 0, 1], 2, top_k=2, **WARM)
        for target, draft_model in STATES)),
    Check("T3", "state rows", "the same with copies of 2, rows of 1 and 3, 2 tokens, top-k 2", lambda: worst(
        ragged(target, PromptLookup(2), [[1], [0, 2, 1]], 2, settings=[{"top_k": 2}] * 2) for target, _ in STATES)),
    Check("T3", "state caches", "the same with chains of 2: kept = recomputed, 3 texts", lambda: worst(
        caches(target, draft_model, ModelDrafter(draft_model, 2), prompts_of(3, 3, 5), 30, **WARM)
        for target, draft_model in STATES)),
    Check("T5", "T5 speed", "accepted in the second round = its expectation, V3 gamma 2, T 0.7",
          partial(speed, TABLE, DRAFT_MODEL, **WARM)),
    Check("T5", "support", "at u = 0 no forbidden token, every rule", support),
    Check("T5", "ledger", "no uniform twice, one for a decision", partial(ledger, TABLE, DRAFT_MODEL, **WARM)),
    Check("T5", "reports", "lengths, identities of rounds, seeds", partial(reports, TABLE, DRAFT_MODEL)),
    Check("T5", "by hand", "every field of the rounds of a draft model always right, and of one never", by_hand),
    Check("T5", "drafts", "the drafts of every drafter, three texts in a batch", partial(drafts, TABLE, DRAFT_MODEL)),
    Check("T5", "hidden states", "what a drafter is told of every committed token",
          partial(hidden_states, TABLE, DRAFT_MODEL)),
    Check("T2", "served", "three requests in two rows, one read in pieces, V3 gamma 1, T 0.7 and top-k 2",
          lambda: joint(TABLE, lambda: ModelDrafter(DRAFT_MODEL, 1), WARM)),
    Check("T2", "served, by survival", "the same with 1 draft token for each on average, 2 at most, top-k 2 for all",
          lambda: joint(TABLE, lambda: BySurvival(DRAFT_MODEL, 2), WARM | {"top_k": 2})),
    Check("T2", "served, tree", "the same with tree 2", lambda: joint(TABLE, lambda: TreeDrafter(DRAFT_MODEL, TWO),
                                                                      WARM),
          slow=True),
    Check("T2", "served, remembered", "copies of what other rows and earlier requests wrote, in a tree",
          lambda: joint(FULL, lambda: SuffixDrafter(2, tree=True, remember=99), WARM)),
    Check("T2", "served, remembered in a chain", "the same, copied in a chain",
          lambda: joint(FULL, lambda: SuffixDrafter(2, remember=99), WARM), slow=True),
    Check("T2", "served, hybrid", "copies in a chain, or a chain of the draft model", lambda: joint(
        TABLE, lambda: DRAFTERS["hybrid"].make(DRAFT_MODEL, Options(gamma=2, costs=COSTS, remember=99)), WARM),
          slow=True),
    Check("T5", "schedules", "3 schedules of 6 requests, some cancelled: as if each were alone",
          lambda: schedules(GPT4, lambda: ModelDrafter(small_learned("mlp", GPT4), 2), range(3))),
    Check("T5", "1,000 schedules", "1,000 schedules of 6 requests, chains and trees of learned draft models",
          lambda: worst(schedules(GPT4, drafter, range(number, 1_000, 4)) for number, drafter in enumerate([
              lambda: ModelDrafter(GPT_DRAFT_MODEL4, 3), lambda: TreeDrafter(GPT_DRAFT_MODEL4, TWO_TWO),
              lambda: ModelDrafter(small_learned("mlp", GPT4), 2),
              lambda: TreeDrafter(small_learned("eagle3", GPT4), TWO_ONE)])), slow=True),
    Check("T5", "labels", "a draft model that says what the target says has a loss of 0", partial(labels, GPT4)),
    Check("T5", "vocabulary", "a draft model of three tokens drafts these three", partial(vocabulary, GPT4)),
    Check("T5", "shared tokens", "a draft model with another tokenizer drafts what both have, V6, T 0.7", drafted),
    Check("T5", "heads", "every head has weights of its own", partial(heads, GPT4)),
    Check("T5", "one after the other", "every rule twice between two refills: no uniform twice", one_after_the_other),
    Check("T5", "rules agree", "on 5 chains the rules of trees accept what those of chains accept", rules_agree),
    Check("T6", "T6 greedy", "10 texts of a GPT in float64, gamma 1, 2, 4, 7", lambda: greedy(
        GPT4, [chain(GPT4, GPT_DRAFT_MODEL4, gamma) for gamma in (1, 2, 4, 7)], prompts_of(4, 10, 5), 30)),
    Check("T6", "tree greedy", "10 texts of a GPT in float64, tree 2-2", lambda: greedy(
        GPT4, [tree(GPT4, GPT_DRAFT_MODEL4, TWO_TWO)], prompts_of(4, 10, 5), 30)),
    *[Check("T6", f"T6 greedy, pair {number}", "34 texts of a random pair in float64, gamma 1, 2, 4, 7",
            partial(lambda target, draft_model: greedy(target,
                                                       [chain(target, draft_model, gamma) for gamma in (1, 2, 4, 7)],
                                                 prompts_of(11, 34, 6), 40), *pair), slow=True)
      for number, pair in enumerate(GPT11, 1)],
]}
# What the core can be tried with while it is changed: its chain, its rule, its loop.
OF_THE_CORE = ("T0", "T1", "T1 together", "T1 nearly equal", "T2 rows", "T2 one greedy", "T3 cache", "T5 speed",
               "support", "ledger", "reports", "by hand", "one after the other", "rules agree", "T6 greedy")
# What a control, which may well be slower than what ships, must pass.
OF_THE_DISTRIBUTION = ("T0", "T1", "T2", "T6 greedy", "dynamic")
