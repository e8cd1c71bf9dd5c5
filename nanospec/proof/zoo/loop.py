"""Bugs of what is carried from round to round: caches, stopping, reports."""

from nanospec.proof.zoo.plant import bug

ROLL_BACK = "cache.length = text.length - 1"
CUT = "emitted, stopped = until(done.emitted, stop)"
LEFT = "left = 0 if stopped else left - len(done.emitted)"

CACHES = [
    bug("target-not-rolled-back", "generic; lucidrains@3194f53, mlx-lm#1109",
        "rejected tokens stay in the target's cache", "exact: chain, token",
        (ROLL_BACK, "kv_length = cache.kv.shape[3]; "
                    "cache.length = (cache.length + drafter.size).clamp(max=kv_length - "
                    "drafter.size) if cache.length.any() else text.length - 1")),
    bug("rolled-back-one-too-few", "generic",
        "one rejected token stays in the target's cache", "T1",
        (ROLL_BACK, "cache.length = text.length")),
    bug("draft-missing-last-accepted", "xllm#960, vllm#5765, vllm-metal#716",
        "after a round in which all was accepted the draft never read its own last token",
        "T3 cache", ("text.last(lag)", "text.last(1)"), ("text.length - lag", "text.length - 1"),
        file="reader"),
    bug("prefix-fed-again", "feifeibear@81f7c13, romsto#1",
        "the last token is fed to a cache that has it", "T1",
        ("target(draft.tokens, cache", "target(torch.cat([text.last(2)[:, :1], draft.tokens[:, "
         "1:]], 1), cache")),
]

STOPPING = [
    bug("first-token-lost", "litgpt#2307", "the first token of the answer is dropped", "reports",
        (LEFT, f"first = left == max_new_tokens; {LEFT}; done.emitted = done.emitted[first:]")),
    bug("rejected-kept", "lucidrains#3", "the text is not cut at the rejection", "T1",
        (CUT, "emitted, stopped = until(done.tokens[1:] + [done.token], stop)")),
    bug("eos-inside-block", "transformers#47912, romsto@97b82fb",
        "only a round's last token is looked at",
        "stops: chain, token", (CUT, "emitted, stopped = done.emitted, done.token in stop")),
    bug("overshoot", "litgpt#2308", "up to gamma tokens more than asked for", "reports",
        ("done.emitted = emitted[:left]", "done.emitted = emitted"),
        (LEFT, f"{LEFT}; left = max(0, left)")),
    bug("counted-after-the-rejection", "vllm#2658, sglang#11572",
        "coins after the rejection count as accepted", "reports",
        ("cls(tokens, parents, way,",
         "cls(tokens, parents, way + [row for row in range(len(way) + 2, n) "
         "if tokens[row] == tokens[-1]],")),
]

BUGS = CACHES + STOPPING
