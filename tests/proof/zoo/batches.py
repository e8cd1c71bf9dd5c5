"""Bugs of batches: what belongs to one text and reaches another, nodes that a text lacks, and who is told what."""

from nanospec.proof.zoo.plant import bug

PARENTS = "torch.where(q_draft.sum(-1) > 0, self.parents, -1)"
WRITE = "self.length[:, None] + self._places[:tokens.shape[1]]"
BUDGET = "order[:self.budget * B]"
HANDED = "drafter.commit(draft, path, count, p_target, hidden, logits)"

ROWS = [
    bug("cross-row-write", "flash-attention#2779", "an index meant for one row is used for every row", "T2 rows",
        (WRITE, WRITE.replace("self.length[:, None]", "self.length[:1, None].expand(len(self.length), 1)")),
        file="text"),
    bug("parents-of-another-row", "ours", "every text's tree is verified with the first text's parents",
        "alone: suffix-tree, token", ("draft.parents[:, :, None]", "draft.parents[:1, :, None]"),
        file="methods.trees.node_rule"),
    bug("draft-of-another-row", "ours", "a rule for one text gets the first text's draft, for every text",
        "batch: chain, traversal", ("rule(*of_text(draft, b)", "rule(*of_text(draft, 0)"),
        file="methods.rules.traversal"),
    bug("ancestors-of-another-row", "ours", "every text's nodes see what the first text's nodes see",
        "alone: dynamic-tree, token",
        ("parents, ancestors_of(parents)", "parents, ancestors_of(parents[:1].expand_as(parents))"),
        file="methods.trees.tree_draft"),
    bug("path-of-another-row", "ours", "the first text's path is committed in every text's cache",
        "alone: tree, token", ("cache.length[:, None] + path", "cache.length[:, None] + path[:1]"),
        file="methods.trees.tree_draft"),
    bug("settings-of-another-row", "ours", "the first text's temperature is used for every text", "T2 rows",
        ("if len(self.rows_of) == 1:", "if self.rows_of:"), file="serving.rows"),
    bug("dice-of-another-row", "ours", "a rule for one text gets the first text's dice, for every text",
        "alone: chain, traversal", ("self.u[b:b + 1]", "self.u[:1]"), file="dice"),
    bug("a-new-request-overwrites-all", "ours", "the prompt with which one row begins anew is read into every row",
        "alone: chain, token", ("self.kv[:, :, rows, :other", "self.kv[:, :, :, :other"), file="cache"),
]

LACKING = [
    bug("padded-with-a-live-parent", "ours", "a node that a text lacks is a child of its root", "drafts",
        ("return TreeDraft(tokens, q_draft, parents)",
         "return TreeDraft(tokens, q_draft, torch.cat([parents[:, :1], parents[:, 1:].clamp(min=0)], 1))"),
        file="methods.trees.tree_draft"),
    bug("a-missing-row-is-accepted", "ours", "a node that a text lacks has a coin like any other",
        "alone: lookup, token", ("torch.where(q_of_x > 0, p_of_x / q_of_x, 0.0)", "p_of_x / q_of_x")),
    bug("a-missing-row-in-a-block", "ours", "the same, by block verification", "alone: lookup, block",
        ("torch.where(drawn, ws[i] * p_of_x[:, i] / q_of_x[:, i], 0.0)", "(ws[i] * p_of_x[:, i] / q_of_x[:, i])"),
        file="methods.rules.block"),
    bug("stopped-rows-report-q", "ours", "a text that has stopped drafting reports a q_draft all the same", "drafts",
        ("torch.where(on, q, 0.0)", "q"), file="methods.lengths.dynamic"),
    bug("rows-of-another-text", "ours", "which nodes exist is known of the first text, and taken for all",
        "alone: lookup, token", ("exist.flatten()", "exist[:1].expand_as(exist).flatten()"), file="serving.ragged"),
    bug("nothing-left-is-a-child", "ours", "a child for which nothing was left keeps its parent", "drafts",
        (PARENTS, "self.parents.clone()"), file="methods.trees.drawn"),
]

SURVIVAL = [
    bug("survival-of-its-own-token", "generic", "whether a draft token is sent depends on how likely it "
        "is itself", "served, by survival",
        ("stands = stands * chance[classes[-1]]\n            survival.append(stands)", "pass"),
        ("tokens.append(dice.pick(q_draft[-1]))", "tokens.append(dice.pick(q_draft[-1])); stands = stands * q_draft[-1]"
         ".gather(1, tokens[-1][:, None])[:, 0]; survival.append(stands)"), file="methods.lengths.by_survival"),
    bug("budget-of-this-round", "generic", "the budget is the best one for what this round has drafted",
        "served, by survival", (BUDGET, "order[:int(((torch.cat(survival)[order].cumsum(0) + 2) / "
                                        "torch.tensor([1, 1.49, 1.49, 1.8])[:len(order)]).argmax()) + 1]"),
        file="methods.lengths.by_survival"),
]

TOLD = [
    bug("hidden-states-of-a-rejected-row", "ours; vllm#14649 kept the draft model's own",
        "a drafter gets those of the node before", "hidden states",
        (HANDED, HANDED.replace("hidden", "None if hidden is None else hidden.roll(1, 1)"))),
]

CHOICE = "rate, texts = max(self.other.goodput(len(text.tokens))), text.ids()"
ASKED = "self._drafted(texts, text, sampling, dice, kv_length, lag)"
COPIED = "self.copied = [self._copy(b, rate) for b in range(len(texts))]"
ASKED_LATER = ASKED.replace("(texts", "(\n            texts")

CHOSEN = [
    bug("chosen-by-the-draw", "generic", "a chain whose first token was drawn with little probability is thrown away "
        "for a copy", "hybrid",
        (CHOICE, f"{CHOICE}; drawn = {ASKED}; rate *= 0.5 + float(drawn.q_draft[0, 1, drawn.tokens[0, 1]])"),
        (f"else {ASKED_LATER}", "else drawn"), file="methods.copies.hybrid"),
    bug("a-copy-where-the-chain-differs", "generic", "the chain is drafted first, and a copy that begins otherwise is "
        "taken in its place", "hybrid",
        (CHOICE, f"{CHOICE}; drawn = {ASKED}"),
        (COPIED, f"{COPIED}; self.copied = [(n, copy * (copy[:1] != drawn.tokens[b, 1:2].tolist())) "
                 "for b, (n, copy) in enumerate(self.copied)]"),
        (f"else {ASKED_LATER}", "else drawn"), file="methods.copies.hybrid"),
    bug("chance-reported-as-q", "generic", "a copied token is reported with the chance that it is accepted", "hybrid",
        ("self.exist[:, :, None]", "self.exist[:, :, None] * self.chances[0]"), file="methods.copies.hybrid"),
    bug("what-was-copied-is-not-read", "ours", "the draft model is not told that copied tokens are new to it: exact, "
        "and slower", "long_caches: hybrid, token", ("self.since.setdefault(b, len(texts[b]))", "pass"),
        file="methods.copies.hybrid"),
]

RULE = "target, self.cache, drafter, self.rule,"
KEPT = "(lambda kept, token: (kept.clamp(max=kept.min()), token))(*self.rule(*of))"

SERVED = [
    bug("lockstep", "generic", "every row keeps as many draft tokens as the row that keeps fewest", "served",
        (RULE, RULE.replace("self.rule", f"lambda *of: {KEPT}")), file="serving.server"),
    bug("a-busy-row-is-given-away", "generic", "a newcomer gets a row in which a request is running", "schedules",
        ("alive = [b for b, request in enumerate(self.running) if not request.done]",
         "alive = [b for b, request in enumerate(self.running) if not request.done][:self.rows - len(self.waiting)]"),
        file="serving.server"),
    bug("a-request-goes-on-with-the-row-s-dice", "vllm#6038", "the request before it has used up some of the row's "
        "uniforms", "alone: chain, token",
        ('dice.generators[b] = torch.Generator("cpu").manual_seed(check_seed(seed))', "pass"),
        file="serving.rows"),
    bug("a-prompt-in-another-row", "generic", "a newcomer's keys and values are put into the first row",
        "served", ("self.cache.put([b], prompt.cache)", "self.cache.put([0], prompt.cache)"), file="serving.server"),
    bug("the-last-piece-alone", "ours", "the drafter gets the hidden states of the last piece of a prompt, from its "
        "beginning on", "alone: chain of mlp, token",
        ("self._hidden(prompt.hidden)", "self._hidden(prompt.hidden[-1:])"), file="serving.server"),
    bug("a-piece-over-the-first", "ours", "every piece of a prompt is written where the first one stands",
        "served", ("self.cache.length += piece.shape[1]", "pass"), file="serving.request"),
]

BUGS = ROWS + LACKING + SURVIVAL + TOLD + CHOSEN + SERVED
