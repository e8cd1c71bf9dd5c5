"""Bugs of learned draft models. The text stays right with all of them: what is lost is speed."""

from nanospec.proof.zoo.plant import bug

STATE = "self.state[self.row[:, None], parents.expand_as(tokens)]"
ELDEST = "self.state[:, :1].expand(-1, tokens.shape[1], -1)"
LEARNED, MEDUSA, EAGLE3 = "draft_models.learned", "draft_models.medusa", "draft_models.eagle3"
EXIT = "draft_models.early_exit"

FEATURES = [
    bug("feature-of-the-wrong-position", "generic; EAGLE's one-ahead shift", "the features before the last token but "
        "one", "long_caches: chain of mlp, token", ("text.length - 1]", "(text.length - 2).clamp(min=0)]"),
        file=LEARNED),
    bug("features-of-rejected-rows-kept", "generic", "the features of the first rows are kept, accepted or not",
        "long_caches: tree of mlp, token", ("features[self.row[:, None], path]", "features"), file=LEARNED),
    bug("features-one-late", "generic", "accepted tokens are paired with their own features",
        "long_caches: chain of hydra, token", ("first = text.length - count - 1", "first = text.length - count - 2"),
        file=LEARNED),
    bug("own-features-left-in-the-cache", "generic; vllm#14649", "accepted draft tokens are not read again with the "
        "target's features", "long_caches: chain of eagle, token",
        ("self.size if self.reader.rereads else 2", "2")),
    bug("a-sibling-s-state", "ours", "a draft token goes on from the first row of the level above",
        "long_caches: tree of mlp, token",
        (STATE, ELDEST),
        file=LEARNED),
    bug("a-sibling-s-feature", "ours", "the same, of EAGLE's layer", "long_caches: tree of eagle3, token",
        (STATE, ELDEST),
        file="draft_models.eagle"),
]

LOOK = [
    bug("a-look-from-the-root", "ours", "every draft token asks the text as if it were the first",
        "long_caches: chain of prefix, token", ("self.place = self.place + 1", "pass"),
        file="draft_models.prefix"),
    bug("a-look-ahead", "ours", "a draft token sees a slot that holds no token of the text",
        "long_caches: chain of prefix, token", ("(text.length - 1)[:, None]", "text.length[:, None]"),
        file="draft_models.eagle"),
    bug("an-uncle-s-state", "ours", "a draft token goes on from the first row of the level above",
        "long_caches: tree of prefix, token", (STATE, ELDEST), file="draft_models.prefix"),
]

HEADS = [
    bug("labels-one-off", "generic; Medusa's shift", "head k learns what stands one place behind its own", "labels",
        ("p_target[:, anchors + k]", "p_target.roll(-1, 1)[:, anchors + k]"), file=LEARNED),
    bug("one-head-for-all", "FasterDecoding/Medusa; SpecDec++", "a list of one head, repeated", "heads",
        ("nn.ModuleList(Linear(channels, channels) for _ in range(heads))",
         "nn.ModuleList([Linear(channels, channels)] * heads)"), file=MEDUSA),
    bug("the-next-head-too-early", "ours", "every head is asked one place early", "long_caches: chain of medusa, token",
        ("self.depth - 1, self.h", "self.depth, self.h"), file=MEDUSA),
]

VOCABULARY = [
    bug("vocabulary-map-missing", "generic; EAGLE-3's d2t", "the number of a token in the draft's head is taken for "
        "the token", "vocabulary", ("index_copy(-1, self.ids,", "index_copy(-1, torch.arange(len(self.offsets)),"),
        file=EAGLE3),
    bug("offsets-taken-for-tokens", "generic; EAGLE-3's d2t", "the map holds offsets, and is read as if it held tokens",
        "vocabulary", ("self.offsets + torch.arange(len(self.offsets), device=self.offsets.device)", "self.offsets"),
        file=EAGLE3),
]

BLOCKS = [
    bug("an-anchor-s-own-features", "SpecForge#470", "in training, a block "
        "sees the features of its anchor, which nobody has when it drafts", "long_caches: chain of dflash, token",
        ("places <= anchors[:, None]", "places <= anchors[:, None] + 1"), file="draft_models.dflash"),
    bug("context-one-position-late", "generic", "the context is turned by its slot, not by its position",
        "long_caches: chain of dspark, token", ("cache.rope[:, (slots - 1).clamp(min=0)]", "cache.rope[:, slots]"),
        file="draft_models.dflash"),
    bug("a-smaller-block", "generic", "fewer rows are drafted at once than in training, and each row sees all of them",
        "long_caches: tree of dflash, token",
        ("n, anchor = self.model.deepest,", "n, anchor = self.model.deepest - 1,"), file="draft_models.dflash"),
]

EXITS = [
    bug("a-layer-left-out", "ours", "the target goes on one layer behind the exit",
        "same_greedy: chain of early_exit, token", ("self.target.rest(self.depth,", "self.target.rest(self.depth + 1,"),
        file=EXIT),
    bug("the-last-row-in-the-first-slot", "ours", "what the draft has not read goes through the first layers in the "
        "place of the draft's first row", "same_greedy: chain of early_exit, token",
        ("cache.length = start + h.shape[1]", "cache.length = start"), file=EXIT),
    bug("a-shared-cache-moved-twice", "ours", "the owner moves its rows, and so does the draft",
        "alone: chain of early_exit, token",
        ("if not self.shared:\n            super().move(rows, count)", "super().move(rows, count)"), file=EXIT),
]

TREES = [
    bug("children-of-the-row-before", "ours", "a row hangs from the row before its parent",
        "long_caches: dynamic-tree, token", ("numbers = made + 1 + best", "numbers = made + best"),
        file="drafters.dynamic_tree"),
]

BUGS = FEATURES + LOOK + HEADS + VOCABULARY + BLOCKS + EXITS + TREES
