"""Bugs of drafters: knowing when to stop, and drafting for the one who drafts. Bugs of what a text may be: grammars and
penalties.
"""

from nanospec.proof.zoo.plant import bug

DRAWN = "tokens.append(dice.pick(torch.where(on, q, certain)))"
GO_BACK = ":\n                tokens.pop()\n                break"
MODELS = "own, q = probs(logits), sampling(logits)"
SURE = "self.sure[b] += [probability] * grows[b]"

STOPPING = [
    bug("drop-the-unlikely-sample", "generic; llama.cpp#22506 does it to argmax drafts, where it is exact",
        "a draft token that the rule dislikes is thrown away", "exact: confidence, token",
        (DRAWN, f"{DRAWN}\n            if not self.rules[0].goes_on([own[0, tokens[-1][0]].item()]){GO_BACK}"),
        file="methods.lengths.dynamic"),
    bug("draw-until-it-is-likely", "generic", "an unlikely draft token is drawn once more, and reported as if it were "
        "not", "exact: heuristic, token", (DRAWN, f"{DRAWN}\n            if own[0, tokens[-1][0]] < 0.3:\n"
                                  "                tokens[-1] = dice.pick(q)"), file="methods.lengths.dynamic"),
    bug("end-of-text-not-guessed", "generic", "a drafted end of text is thrown away: nothing follows it",
        "exact: confidence, token",
        (DRAWN, f"{DRAWN}\n            if tokens[-1][0] == 0{GO_BACK}"), file="methods.lengths.dynamic"),
]

STACKS = [
    bug("the-lowest-q-passed-upward", "generic", "what the lowest drafter drew from is reported, not what the middle "
        "model writes by", "exact: stack, token",
        ("_, p_middle, path", "lower, p_middle, path"),
        ("written = p_middle.gather(1, path", "written = lower.q_draft.roll(-1, 1).clamp(min=1e-9).gather(1, path"),
        file="methods.stack"),
    bug("the-middle-does-not-catch-up", "ours", "the middle model never reads what was new to it when the round ended",
        "long_caches: stack, token", ("if new > 0", "if new > 99"), file="methods.stack"),
    bug("a-place-late-in-a-stack", "ours", "each token of a stack's draft is reported with its neighbour's "
        "distribution", "long_caches: stack, token",
        ("gamma).clamp(max=gamma) + 1", "gamma - 1).clamp(max=gamma - 1) + 2"), file="methods.stack"),
]

BEFORE = "before = torch.where(parent < 0, max(self.prompt, 0), known[row, parent])"
STATE = "known[row, own] = after"

GRAMMARS = [
    bug("a-state-that-is-not-rolled-back", "generic; vllm#48197 tells of several", "the first mask of a round is that "
        "of the state after the last draft token of the round before, accepted or not", "grammar",
        (BEFORE, f"{BEFORE}\n            before = getattr(cache, 'last', before) if T > t == 0 else before"),
        (STATE, f"{STATE}\n            cache.last = known[row, slots[:, t]]"), file="methods.wrappers.grammar"),
    bug("one-mask-for-all-rows", "generic; vllm#46272 proposed it", "all nodes of a draft have the mask of node 0",
        "grammar", ("~self.allowed[states]", "~self.allowed[states[:, :1]]"), file="methods.wrappers.grammar"),
    bug("the-row-before-is-the-parent", "ours", "in a tree, a node's state follows the one before it, a sibling's",
        "grammar", ("if attention_mask is not None:", "if attention_mask is None and False:"),
        file="methods.wrappers.grammar"),
]

COUNTS = "counts = self._counts(self.kept(cache), attention_mask[:, first:], logits)"
ALL_READ = "(tally + torch.nn.functional.one_hot(tokens, logits.shape[2]).cumsum(1))"

PENALTIES = [
    bug("a-counter-that-is-not-taken-back", "generic", "a counter to which every token is added that is "
        "read still has those that were rejected", "penalties",
        (COUNTS, "tally = getattr(cache, 'tally', 0); "
                 f"counts = {ALL_READ}[:, first:]; cache.tally = {ALL_READ}[:, -1:]"),
        file="methods.wrappers.penalties"),
    bug("a-bonus-token-past-the-penalties", "ardanlabs/kronk#788", "the bonus token is drawn without penalties",
        "penalties", ("return worth - self.frequency * counts", "worth = worth - self.frequency * counts; return "
                      "torch.cat([worth[:, :-1], (logits if logits.shape[1] > 2 else worth)[:, -1:]], 1)"),
        file="methods.wrappers.penalties"),
    bug("one-counter-for-draft-and-target", "osaurus-ai/vmlx-swift#357", "draft model and target add to one counter, "
        "so that a draft token has been counted when the target reads it", "penalties",
        (COUNTS, "tally = getattr(Penalised, 'tally', 0) if logits.shape[1] else 0; "
                 f"counts = {ALL_READ}[:, first:]; Penalised.tally = {ALL_READ}[:, -1:]"),
        file="methods.wrappers.penalties"),
]

# What looks like it and is exact.
CONTROLS = [
    bug("stop-after-an-end-of-text", "generic", "a drafted end of text is kept, and drafting ends after it", "",
        (SURE, f"{SURE}\n            if tokens[-1][0] == 0:\n                break"), file="methods.lengths.dynamic"),
    bug("stop-before-an-undecided-draw", "generic", "no draft token where none is likely", "",
        ("self.rules[b].draws(own[b])", "own[b].max() >= 0.6"), file="methods.lengths.dynamic"),
    bug("drop-it-for-the-guess-before", "generic", "a draft token is thrown away because the one before it was "
        "unlikely", "", (DRAWN, f"{DRAWN}\n            if self.sure[0] and self.sure[0][-1] < 0.3{GO_BACK}"),
        file="methods.lengths.dynamic"),
    bug("drop-the-unlikely-argmax", "llama.cpp#22506", "a draft token without chance in it is thrown away if it is "
        "unlikely", "", (MODELS, "own = probs(logits); q = (own == own.max()).to(own); q = q / q.sum()"),
        (DRAWN, f"{DRAWN}\n            if own[0, tokens[-1][0]] < 0.6{GO_BACK}"), file="methods.lengths.dynamic"),
]

BUGS = STOPPING + STACKS + GRAMMARS + PENALTIES
