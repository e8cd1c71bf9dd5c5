"""Bugs of learned draft models. The text stays right with all of them: what is lost is speed."""

from nanospec.proof.zoo.plant import bug

STATE = "self.state[self._row, parents.expand_as(tokens)]"
ELDEST = "self.state[:, :1].expand(-1, tokens.shape[1], *self.state.shape[2:])"
READER = "methods.draft_models.text_reader"
WHOLE = "methods.draft_models.unrolled"
MEDUSA, PRUNED, DFLASH = "methods.draft_models.medusa", "methods.draft_models.pruned", "methods.draft_models.dflash"

HIDDEN = [
    bug("hidden-states-of-the-wrong-position", "generic; EAGLE's one-ahead shift",
        "the hidden states before the last token but one", "long_caches: chain of mlp, token",
        ("before, call = self.kept[self._row, places],",
         "before, call = self.kept[self._row, (places - 1).clamp(min=0)],"), file=READER),
    bug("hidden-states-of-rejected-rows-kept", "generic",
        "the hidden states of the first nodes are kept, accepted or not",
        "long_caches: tree of mlp, token", ("hidden[self._row, path]", "hidden"), file=READER),
    bug("hidden-states-one-late", "generic",
        "accepted tokens are paired with their own hidden states",
        "long_caches: chain of hydra, token",
        ("self.text.length - count - 1", "self.text.length - count - 2"), file=READER),
    bug("own-hidden-states-left-in-the-cache", "generic; vllm#14649",
        "accepted draft tokens are not read again with the target's hidden states",
        "long_caches: chain of eagle, token", ("self.lag = depth + 1", "self.lag = 2"),
        file=READER),
    bug("a-sibling-s-state", "ours", "a draft token goes on from the first node of the level above",
        "long_caches: tree of mlp, token", (STATE, ELDEST), file=READER),
    bug("an-anchor-sees-another-s-draft", "ours; EAGLE-3's training-time test",
        "in training, a draft token attends to the one that an earlier anchor has drafted",
        "long_caches: chain of eagle3, token",
        ("self.own.append((k, v))", "self.own.append((k.roll(1, 2), v.roll(1, 2)))"), file=WHOLE),
]

LOOK = [
    bug("a-look-from-the-root", "ours", "every draft token asks the text as if it were the first",
        "long_caches: chain of prefix, token", ("self.place = self.place + 1", "pass"),
        file=READER),
    bug("a-look-ahead", "ours", "a draft token attends to a slot that holds no token of the text",
        "long_caches: chain of prefix, token",
        ("cache.causal_mask(places[:, -1:], ", "cache.causal_mask(places[:, -1:] + 1, "),
        file=READER),
    bug("the-first-token-asks-for-the-last", "ours",
        "of the tokens that are read again the first one is asked what comes next",
        "long_caches: chain of prefix, token",
        ("kv_length, slice(-1, None)", "kv_length, slice(0, 1)"), file=READER),
    bug("the-text-one-place-early", "generic",
        "committed tokens are turned to the place before their own, draft tokens are not",
        "long_caches: chain of eagle, token",
        ("rope = self.table[:, places]", "rope = self.table[:, (places - 1).clamp(min=0)]"),
        file=READER),
]

HEADS = [
    bug("labels-one-off", "generic; Medusa's shift",
        "head k learns what stands one place after its own", "labels",
        ("divergence(*compared(model, p_target[:, anchors + k],",
         "divergence(*compared(model, p_target.roll(-1, 1)[:, anchors + k],"),
        file=WHOLE),
    bug("one-head-for-all", "FasterDecoding/Medusa; SpecDec++", "a list of one head, repeated",
        "heads", ("blocks_of_zeros([channels] * heads, channels)",
                  "nn.ModuleList([*blocks_of_zeros([channels], channels)] * heads)"), file=MEDUSA),
    bug("the-next-head-too-early", "ours", "every head is asked one place early", "labels",
        ("self.after_token(state[..., 0, :], tokens)",
         "self.after_token(state[..., min(1, state.shape[-2] - 1), :], tokens)"),
        file="methods.draft_models.learned"),
]

VOCABULARY = [
    bug("vocabulary-map-missing", "generic; EAGLE-3's d2t",
        "the number of a token in the draft model's head is taken for the token", "vocabulary",
        ("index_copy(-1, self.ids,", "index_copy(-1, torch.arange(len(self.offsets)),"),
        file=PRUNED),
    bug("offsets-taken-for-tokens", "generic; EAGLE-3's d2t",
        "the map holds offsets, and is read as if it held tokens", "vocabulary",
        ("self.offsets + torch.arange(len(self.offsets), device=self.offsets.device)",
         "self.offsets"), file=PRUNED),
]

BLOCKS = [
    bug("an-anchor-s-own-hidden-states", "SpecForge#470",
        "in training, a block attends to the hidden states of its anchor, which are not there when "
        "it drafts", "long_caches: chain of dflash, token",
        ("places <= anchors[:, None]", "places <= anchors[:, None] + 1"), file=WHOLE),
    bug("a-smaller-block", "generic",
        "no more is drafted at once than is asked for, and each place attends to all of that",
        "long_caches: tree of dflash, token",
        ("n, anchors = self.deepest,", "n, anchors = call.steps,"), file=DFLASH),
]

TREES = [
    bug("children-of-the-row-before", "ours", "a node follows the node before its parent",
        "long_caches: dynamic-tree, token",
        ("numbers = made + 1 + best", "numbers = made + best"), file="methods.trees.dynamic_tree"),
]

BUGS = HIDDEN + LOOK + HEADS + VOCABULARY + BLOCKS + TREES
