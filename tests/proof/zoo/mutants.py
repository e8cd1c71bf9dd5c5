"""Mutants: bugs that no project had, made up to try the checks where they were once blind. Settings together and ties;
uniforms that are used again; deep, wide and long drafts; distributions that are nearly equal; stops; reports; speed.
"""

from nanospec.proof.zoo.plant import bug

DRAW = "tokens.append(dice.pick(q_draft[-1]))"
CUT = "emitted, stopped = until(done.emitted, stop)"
LIMIT = "done.emitted = emitted[:left]"
MASK = "tree_mask(cache, cache.length, self.ancestors, kv_length)"
ATTENDS = "self._slots[:kv_length] <= slots[:, :, None]"
TO = "to, source = cache.length[:, None] + count,"
DRAWN = "drawn, q = self._draw(left, parents, dice)"


def mutant(name: str, what: str, caught_by: str, *edits: tuple[str, str], file: str = "speculate"):
    return bug(name, "ours", what, caught_by, *edits, file=file)


def scored(how: str) -> tuple[str, str]:
    """The target's logits become probabilities in another way."""
    settings = "heat, top_k, top_p, min_p = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)"
    return "p_target = sampling(logits)", f"{settings}; p_target = {how}"


SETTINGS = [
    mutant("top-p-before-top-k", "top-k is applied after top-p", "T1 together", scored(
        "Sampling(1.0, top_k, None, min_p)(Sampling(heat, None, top_p)(logits).log()) if top_k and top_p "
        "else sampling(logits)")),
    mutant("top-k-lost-beside-top-p", "where both are set top-k is forgotten", "T1 together", scored(
        "Sampling(heat, None, top_p, min_p)(logits) if top_p else sampling(logits)")),
    mutant("min-p-before-the-temperature", "min-p looks at the probabilities at temperature 1", "T1 together", scored(
        "Sampling(heat, top_k, top_p)(Sampling(min_p=min_p)(logits).log())")),
    mutant("greedy-takes-the-last-of-equals", "at temperature 0 the last of several likeliest tokens is taken",
           "T1 together", scored("sampling(logits) if heat else sampling(logits.flip(-1)).flip(-1)")),
    mutant("top-k-breaks-ties", "of the tokens that tie with the k-th only some are kept", "T1 together", scored(
        "sampling(logits.masked_fill(logits.argsort(-1, descending=True).argsort(-1) >= (top_k or 99), -torch.inf))")),
    mutant("top-p-breaks-ties", "of the tokens that tie with the last of top-p only the first is kept", "T1 together",
           scored("sampling(logits - 1e-9 * torch.arange(logits.shape[-1])) if top_p else sampling(logits)")),
    mutant("cold-is-greedy", "a temperature below 0.3 is taken for 0", "T1 together", scored(
        "Sampling(heat if heat >= 0.3 else 0, top_k, top_p, min_p)(logits)")),
    mutant("greedy-for-all-if-one-is", "one greedy row makes every row greedy", "T2 one greedy",
           ("enumerate(of_rows)",
            "enumerate(of_rows if all(its.temperature for its in of_rows) else [Sampling(0)] * 2)"),
           file="serving.rows"),
]

RANDOMNESS = [
    mutant("coins-do-not-move-on", "every coin of a tree is flipped by the same uniform", "uniforms: tree, token",
           ("rejected = torch.where(", "dice.column -= 1; rejected = torch.where("), file="methods.trees.node_rule"),
    mutant("block-pick-reuses-a-coin", "the token is drawn by the last coin's uniform", "uniforms: chain, block",
           ("return accepted, dice.pick(left)", "dice.column -= 1; return accepted, dice.pick(left)"),
           file="methods.rules.block"),
    mutant("traversal-coins-do-not-move-on", "every coin is flipped by the same uniform", "uniforms: tree, block",
           ("dice.flip(chance", "dice.of_row(0).flip(chance"), file="methods.rules.traversal"),
    mutant("draft-does-not-move-on", "every draft token is drawn by the same uniform, and the rule has it next",
           "uniforms: chain, token", (DRAW, "tokens.append(dice.of_row(0).pick(q_draft[-1]))")),
    mutant("siblings-drawn-alike", "siblings are drawn by the same uniform", "uniforms: tree, token",
           ("token = dice.pick(weights)", "at = dice.column; token = dice.pick(weights); dice.column = at + 1"),
           file="methods.trees.drawn"),
    mutant("column-before-the-pick", "the dice go on at the uniform by which a rule for one text drew its token",
           "one after the other", ("dice.column = max(die.column", "dice.column = max(die.column - 1"),
           file="methods.rules.traversal"),
    mutant("private-dice-like-the-requests", "the draft model throws dice of its own, seeded as the request's are",
           "real_dice: chain, token",
           (DRAW, "own = Dice([g.initial_seed() for g in dice.generators]) if hasattr(dice, 'u') else dice; "
                  "own.refill(1); tokens.append(own.pick(q_draft[-1]))")),
    mutant("more-rows-more-draws", "the more rows a batch has, the further every generator moves on",
           "alone: chain, token", ("torch.rand(uniforms, generator=generator, dtype=self.dtype, device=\"cpu\")",
                                   "torch.rand(uniforms - 1 + len(self.generators), generator=generator, "
                                   "dtype=self.dtype, device=\"cpu\")[:uniforms]"), file="dice"),
    mutant("pick-can-be-zero", "at u = 0 a token of weight 0 is drawn", "support", ("right=True", "right=False"),
           file="dice"),
]

FAR = [
    mutant("flat-at-depth-three", "positions stop growing at depth 3", "long_caches: tree, token",
           ("self.ancestors.sum(-1) - 1", "(self.ancestors.sum(-1) - 1).clamp(max=2)"),
           file="methods.trees.tree_draft"),
    mutant("elder-sibling-seen-late", "nodes after the seventh see the node before them", "long_caches: tree, token",
           (MASK, MASK.replace("self.ancestors,", "self.ancestors | torch.eye(self.ancestors.shape[1]).roll(-1, 1)"
                               ".bool().tril().triu(-1) & (torch.arange(self.ancestors.shape[1])[:, None] > 7),")),
           file="methods.trees.tree_draft"),
    mutant("four-generations", "a node sees no more than four generations", "long_caches: tree, token",
           ("range((n - 1).bit_length())", "range(min(2, (n - 1).bit_length()))"), file="methods.trees.tree_draft"),
    mutant("eighty-slots-seen", "a token sees the last eighty slots only", "long_caches: chain, token",
           (ATTENDS, f"({ATTENDS}) & (self._slots[:kv_length] > slots[:, :, None] - 80)"), file="cache"),
    mutant("eighty-slots-committed", "after the eightieth slot no path is committed", "long_caches: tree, token",
           (TO, "to, source = (cache.length[:, None] + count).clamp(max=80),"), file="methods.trees.tree_draft"),
    mutant("draft-flat-at-depth-three", "the draft model's positions end at depth 3", "long_caches: tree, token",
           ("+ self.depth)", "+ min(self.depth, 1))"), file="methods.trees.tree_reader"),
    mutant("third-child-reports-the-first", "the third child reports what the first was drawn from", "tree of 3",
           (DRAWN, f"first = left.clone() if parents is level.draws[0] else first; {DRAWN}; "
                   "q = first[:, parents] if any(parents is later for later in level.draws[2:]) else q"),
           file="methods.trees.drawn"),
]

CLOSE = [
    mutant("almost-nothing-left", "a residual of less than 1e-6 counts as none", "T0",
           ("total == 0", "total < 1e-6"), file="probs"),
    mutant("next-to-nothing-left", "a residual of less than 1e-10 counts as none", "T1 nearly equal",
           ("total == 0", "total < 1e-10"), file="probs"),
    mutant("epsilon-in-the-ratio", "1e-8 is added to q_draft, lest it be 0", "T0",
           ("draft.q_draft[:, 1:].gather(-1, x)", "(draft.q_draft[:, 1:].gather(-1, x) + 1e-8)")),
    mutant("block-reached-almost", "a length reached with less than 1e-6 is always cut to", "T1 nearly equal",
           ("reached == 0", "reached < 1e-6"), file="methods.rules.block"),
    mutant("traversal-almost-nothing", "what is missing is forgotten below 1e-6", "T1 nearly equal",
           ("total > 0", "total > 1e-6"), file="methods.rules.traversal"),
    mutant("single-precision-on-the-way", "what a rejection leaves goes through float32", "T0",
           ("p[i], rejected)", "p[i], rejected.float().to(rejected))"), file="methods.trees.node_rule"),
]

STOPS = [
    mutant("greedy-does-not-stop", "stop tokens are ignored at temperature 0", "stops: chain, token",
           ("len(ids), max_new_tokens, stop)", "len(ids), max_new_tokens, stop if temperature else ())")),
    mutant("stop-on-the-limit", "a stop token on the last place asked for is cut off", "stops: chain, token",
           (LIMIT, "done.emitted = emitted[:left - (stopped and len(emitted) == left)]")),
    mutant("stop-after-the-limit", "a stop token one place after the limit is emitted", "stops: chain, token",
           (LIMIT, "done.emitted = emitted[:left + (stopped and len(emitted) == left + 1)]")),
    mutant("only-one-stop", "only the first of several stop tokens counts", "stops: chain, token",
           (CUT, "emitted, stopped = until(done.emitted, list(stop)[:1])")),
    mutant("stop-not-emitted", "the stop token is not emitted", "stops: chain, token",
           ("return tokens[:i + 1], True", "return tokens[:i], True"), file="text"),
]

REPORTS = [
    mutant("path-cut-with-the-text", "accepted nodes whose tokens were cut off are not reported", "by hand",
           ("yield done", "done.path = done.path[:len(done.emitted)]; yield done")),
    mutant("counted-before-the-cut", "the token is reported as emitted where it was cut off", "by hand",
           (CUT, f"whole = done.emitted; {CUT}"),
           ("yield done", "done.emitted = done.emitted if left else whole; yield done")),
    mutant("one-step-too-many", "the draft's steps count the nodes of the draft", "by hand",
           ("*q_draft], 1), self.gamma)", "*q_draft], 1), self.most + 1)")),
    mutant("rejected-at-the-root", "the rejected tokens are those of the first place", "by hand",
           ("last = [0, *self.path][-1]", "last = 0")),
    mutant("q-of-the-row-before", "a node is reported with the q_draft of the node before", "T3 cache",
           ("p_target[0], draft.q_draft[0],", "p_target[0], draft.q_draft[0].roll(1, 0),")),
    mutant("copied-with-a-half", "a copied token is reported with a probability of 1/2", "exact: lookup, token",
           ("[:, :, None].to(q_draft))", "[:, :, None].to(q_draft) / 2)"), file="methods.trees.tree_draft"),
]

SPEED = [
    mutant("tree-gives-up", "nodes after the third are not tried: exact, and slower", "rules agree",
           ("for i in range(1, n):", "for i in range(1, min(n, 4)):"), file="methods.trees.node_rule"),
    mutant("prompt-of-the-first-request", "a drafter's second prompt is not read: exact, and slower",
           "second_request: chain, token",
           ("prefill(self.model, text, cache=self.cache, rows=rows)",
            "vars(self).setdefault('first', text) is text and prefill(self.model, text, cache=self.cache, rows=rows)"),
           file="reader"),
    mutant("stopping-rules-are-shared", "all rows of a batch share one stopping rule", "alone: heuristic, token",
           ("copy(self.when)", "self.when"), file="methods.lengths.dynamic"),
    mutant("what-was-taken-back-stays", "a copier does not see that tokens were taken back",
           "shrinking_text: lookup, token", ("if ids[:len(self.ids)] != self.ids:", "if not ids:"),
           file="methods.copies.lookup"),
]

BUGS = SETTINGS + RANDOMNESS + FAR + CLOSE + STOPS + REPORTS + SPEED
