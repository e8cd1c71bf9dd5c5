"""Bugs of batches: what belongs to one text and reaches another, rows that a text lacks, and who is told what."""

from nanospec.proof.zoo.plant import bug

PARENTS = "torch.where(q_draft.sum(-1) > 0, self.parents, -1)"
WRITE = "self.length[:, None] + self._count[:tokens.shape[1]]"
BUDGET = "order[:self.budget * len(survival[0])]"
HANDED, THEIRS = "drafter.commit(draft, accepted, p_target, features)", "_rows(its_features, at)"

ROWS = [
    bug("cross-row-write", "flash-attention#2779", "an index meant for one row is used for every row", "T2 rows",
        (WRITE, WRITE.replace("self.length[:, None]", "self.length[:1, None].expand(len(self.length), 1)")),
        file="text"),
    bug("parents-of-another-row", "ours", "every text's tree is verified with the first text's parents",
        "alone: suffix-tree, token", ("draft.parents[:, :, None]", "draft.parents[:1, :, None]"), file="rules.tree"),
    bug("draft-of-another-row", "ours", "a rule for one text gets the first text's draft, for every text",
        "batch: chain, traversal", ("rule(*draft.of_text(b)", "rule(*draft.of_text(0)"), file="rules.traversal"),
    bug("ancestors-of-another-row", "ours", "every text's rows see what the first text's rows see",
        "alone: suffix-tree, token", ("sees, tree = draft.ancestors(), {}", "sees, tree = draft.ancestors(), {}; "
                                      "sees = None if sees is None else sees[:1].expand_as(sees)")),
    bug("path-of-another-row", "ours", "the first text's path is committed in every text's cache",
        "alone: tree, token", ("], start[:, None] + path", "], start[:, None] + path[:1]"), file="cache"),
    bug("settings-of-another-row", "ours", "the first text's temperature is used for every text", "T2 rows",
        ("if len(self.rows_of) == 1:", "if self.rows_of:"), file="probs"),
    bug("dice-of-another-row", "ours", "a rule for one text gets the first text's dice, for every text",
        "alone: chain, traversal", ("self.u[b:b + 1]", "self.u[:1]"), file="dice"),
    bug("a-new-request-overwrites-all", "ours", "the prompt with which one row begins anew is read into every row",
        "alone: chain, token", ("self.kv[:, :, rows, :other", "self.kv[:, :, :, :other"), file="cache"),
]

LACKING = [
    bug("padded-with-a-live-parent", "ours", "a row that a text lacks is a child of its root", "drafts",
        ("padded([tree.parents for tree in trees], -1, device)", "padded([tree.parents for tree in trees], 0, device)"),
        ("q_draft[:, 1:] *= (parents[:, 1:, None] >= 0)",
         "[q_draft[b, len(tree.parents):].zero_() for b, tree in enumerate(trees)]"), file="draft"),
    bug("stopped-rows-go-on", "ours", "a text that has stopped drafting has as many rows as the longest", "drafts",
        ("[*range(-1, count - 1)]", "[*range(-1, max(counts) - 1)]"), file="draft"),
    bug("stopped-rows-report-q", "ours", "a text that has stopped drafting reports a q_draft all the same", "drafts",
        ("torch.where(on, q, 0.0)", "q"), file="drafters.dynamic"),
    bug("there-of-another-width", "ours", "which rows are there is counted as if every text had as many as this one",
        "served, by survival", ("[b * n + i for", "[b * count + i for"), file="draft"),
    bug("nothing-left-is-a-child", "ours", "a child for which nothing was left keeps its parent", "drafts",
        (PARENTS, "self.parents.clone()"), file="drafters.tree"),
]

SURVIVAL = [
    bug("survival-of-its-own-token", "generic", "whether a draft token is sent depends on how likely it "
        "is itself", "served, by survival",
        ("stands = stands * chance[classes[-1]]\n            survival.append(stands)", "pass"),
        ("tokens.append(dice.pick(q_draft[-1]))", "tokens.append(dice.pick(q_draft[-1])); stands = stands * q_draft[-1]"
         ".gather(1, tokens[-1][:, None])[:, 0]; survival.append(stands)"), file="drafters.by_survival"),
    bug("budget-of-this-round", "generic", "the budget is the best one for what this round has drafted",
        "served, by survival", (BUDGET, "order[:int(((torch.cat([*survival])[order].cumsum(0) + 2) / "
                                        "torch.tensor([1, 1.49, 1.49, 1.8])[:len(order)]).argmax()) + 1]"),
        file="drafters.by_survival"),
]

TOLD = [
    bug("features-of-a-rejected-row", "ours; vllm#14649 kept the draft's own", "a drafter gets the features of the row "
        "before", "features",
        (HANDED, HANDED.replace("features", "None if features is None else features.roll(1, 1)"))),
    bug("features-in-the-trees-order", "ours", "joined drafters get the features of the joined rows, not of their own",
        "features", (THEIRS, "its_features[:, :at.shape[1]]"), file="drafters.merged"),
    bug("merged-and-not-told", "ours", "a drafter does not know that another's tokens are new to it: exact, and slower",
        "long_caches: merged, token",
        ("drafter.unread = max(drafter.unread, self.unread, self.deepest)", "pass"), file="drafters.merged"),
    bug("merged-without-the-second-coin", "ours", "a token that two drafters drew has one coin", "merged",
        ("elder is None or drawn[i]", "elder is None"), file="drafters.merged"),
    bug("merged-q-of-another", "ours", "a row has the q_draft of another drafter's row", "merged",
        ("origin.append(start + i)", "origin.append(i)"), file="drafters.merged"),
]

CHOICE = "rate, texts = max(self.chain.goodput(len(text.tokens))), text.ids()"
ASKED = "self._chain(texts, text, sampling, dice, upto)"

CHOSEN = [
    bug("chosen-by-the-draw", "generic", "a chain whose first token was drawn with little probability is thrown away "
        "for a copy", "hybrid",
        (CHOICE, f"{CHOICE}; chain = {ASKED}; rate *= 0.5 + float(chain.q_draft[0, 1, chain.tokens[0, 1]])"),
        (f"chain = Draft.nothing(text) if all(lengths) else {ASKED}", "pass"), file="drafters.hybrid"),
    bug("chance-reported-as-q", "generic", "a copied token is reported with the chance that it is accepted", "hybrid",
        ("copy] = 1", "copy] = self.accepted[0] / self.judged[0]"), file="drafters.hybrid"),
    bug("what-was-copied-is-not-read", "ours", "the draft model is not told that copied tokens are new to it: exact, "
        "and slower", "long_caches: hybrid, token", ("self.since.setdefault(b, len(texts[b]))", "pass"),
        file="drafters.hybrid"),
    bug("copied-rows-keep-the-chain", "ours", "where a copy is shorter than the chain beside it, the chain's last "
        "tokens stay", "hybrid", ("tokens[b, 1:], q_draft[b] = 0, 0", "pass"), file="drafters.hybrid"),
]

RULE = "self.verifies, self.cache, self.drafter, self.rule,"
KEPT = "(lambda kept, token: (kept.clamp(max=kept.min()), token))(*self.rule(*of))"

SERVED = [
    bug("lockstep", "generic", "every row keeps as many draft tokens as the row that keeps fewest", "served",
        (RULE, RULE.replace("self.rule", f"lambda *of: {KEPT}")), file="serve"),
    bug("a-busy-row-is-given-away", "generic", "a newcomer gets a row in which a request is running", "schedules",
        ("alive = [b for b, request in enumerate(self.running) if not request.done]",
         "alive = [b for b, request in enumerate(self.running) if not request.done][:self.rows - len(self.waiting)]"),
        file="serve"),
    bug("a-request-goes-on-with-the-row-s-dice", "vllm#6038", "whoever had the row before has used up some of its "
        "uniforms", "alone: chain, token", ("self.dice.reseed(b, prompt.request.seed)", "pass"), file="serve"),
    bug("a-prompt-in-another-row", "generic", "a newcomer's keys and values are put into the first row",
        "served", ("self.cache.put([b], prompt.cache)", "self.cache.put([0], prompt.cache)"), file="serve"),
    bug("the-last-piece-alone", "ours", "the drafter gets the features of the last piece of a prompt, from its "
        "beginning on", "alone: chain of mlp, token",
        ("self._features(prompt.features)", "self._features(prompt.features[-1:])"), file="serve"),
    bug("a-piece-over-the-first", "ours", "every piece of a prompt is written where the first one stands",
        "served", ("self.cache.length += piece.shape[1]", "pass"), file="serve"),
]

BUGS = ROWS + LACKING + SURVIVAL + TOLD + CHOSEN + SERVED
