"""Bugs of a chain (the coin, the residual, which distribution, which node, randomness), and of what
is carried from round to round: caches, stopping, reports.
"""

from nanospec.proof.zoo.plant import bug

RATIO = "p_of_x / q_of_x"
COIN = "dice.flip(torch.where(q_of_x > 0, p_of_x / q_of_x, 0.0))"
COUNT = ".long().cumprod(-1).sum(-1)"
LEFT = "residual(p_target[b, accepted], q_after[b, accepted])"
RESIDUAL = "left = (p_target - q_draft).clamp(min=0)"           # of probs.py
SCORE = "p_target = sampling(logits)"
DRAW = "tokens.append(dice.pick(q_draft[-1]))"
REPORT = "q_draft.append(sampling(logits[:, 0]))"
ONE_HOT = "torch.nn.functional.one_hot"
ROLL_BACK = "cache.length = text.length - 1"
CUT = "emitted, stopped = until(done.emitted, stop)"
LEFT_OVER = "left = 0 if stopped else left - len(done.emitted)"

ACCEPTANCE = [
    bug("ratio-flipped", "feifeibear/LLMSpeculativeSampling@9f5d2e5",
        "the threshold is q_draft / p_target", "T0", (RATIO, "q_of_x / p_of_x")),
    bug("accept-everything", "huggingface/transformers#28508, vllm-ascend#13730",
        "every draft token is accepted", "T1", (COIN, "dice.flip(torch.ones_like(p_of_x))")),
    bug("logits-as-probabilities", "dust-tt/llama-ssp@b9c92d4",
        "the target's softmax is missing", "T1", (SCORE, "p_target = logits")),
    bug("only-first-test-counts", "lucidrains/speculative-decoding@a536030",
        "the search for the first rejection runs along an axis of size 1", "T1",
        ("coins" + COUNT, "coins[:, :1].expand_as(coins).long().sum(-1)")),
    bug("accept-after-a-rejection", "generic",
        "draft tokens after a rejected one are counted too", "T1",
        (COUNT, ".long().sum(-1)")),
    bug("uniform-can-be-zero", "the comment in vLLM's sampler; Sequoia",
        "u <= prob accepts a forbidden token at u = 0", "support",
        ("self._take(prob.shape[1]) < prob", "self._take(prob.shape[1]) <= prob"), file="dice"),
    bug("lenience", "Leviathan et al. A.5; lossy by design",
        "the threshold is min(1, p / (0.8 q))", "T1",
        (COIN, "dice.flip(p_of_x / q_of_x / 0.8)")),
    bug("threshold-acceptance", "sglang's threshold_acc; lossy by design",
        "a draft token of p_target above 0.5 is accepted", "T0",
        (COIN, "dice.flip(p_of_x / q_of_x + (p_of_x > 0.5))")),
]

RESIDUALS = [
    bug("residual-is-target", "romsto/Speculative-Decoding@0b1fa52",
        "the replacement is drawn from p_target", "T0", (LEFT, "p_target[b, accepted]")),
    bug("residual-softmaxed", "transformers#28508, feifeibear@3505d00",
        "softmax of the residual, not its sum", "T1",
        (RESIDUAL, RESIDUAL + ".softmax(-1)"), file="probs"),
    bug("residual-pointwise", "SafeAILab/EAGLE@2f982e2, xllm#2175",
        "q_draft is subtracted at the draft token only",
        "T1", (LEFT, "residual(p_target[b, accepted], q_after[b, accepted] * "
                     f"{ONE_HOT}(draft.tokens.roll(-1, 1)[b, accepted], p_target.shape[2]))")),
    bug("residual-absolute", "generic", "|p_target - q_draft|", "T1",
        (RESIDUAL, "left = (p_target - q_draft).abs()"), file="probs"),
    bug("residual-argmax", "generic", "the replacement is the residual's likeliest token", "T1",
        (LEFT, f"{ONE_HOT}({LEFT}.argmax(-1), p_target.shape[2])")),
    bug("warp-residual-again", "Lightning-AI/litgpt",
        "temperature is applied to the residual once more", "T1",
        (LEFT, f"{LEFT} ** (1 / 0.7)")),
    bug("zero-residual-nan", "Sequoia; MTPLX#82", "p = q up to rounding leaves 0/0", "T0",
        ("torch.where(total == 0, p_target, left / total)", "left / total"), file="probs"),
]

DISTRIBUTIONS = [
    bug("greedy-draft-soft-q", "jaymody/speculative-sampling@ffa233e, transformers#33534",
        "the draft model takes its argmax and reports a softmax", "T1",
        (DRAW, "tokens.append(q_draft[-1].argmax(-1))")),
    bug("draft-warped-q-raw", "transformers#47932", "drawn with top-k, reported without",
        "T1 together", (REPORT, "q_draft.append(Sampling()(logits[:, 0]))"),
        (DRAW, "tokens.append(dice.pick(sampling(q_draft[-1].log())))")),
    bug("target-unwarped", "vllm#9834", "temperature and top-k are for the draft model only", "T1",
        (SCORE, "p_target = Sampling()(logits)")),
    bug("processors-only-on-bonus", "vllm#42744, sglang#10617",
        "only the last node has temperature and top-k", "T1",
        (SCORE, "p_target = torch.cat([Sampling()(logits[:, :-1]), sampling(logits[:, -1:])], 1)")),
    bug("draft-dtype-mismatch", "deepseek-ai/DeepSpec#31",
        "drawn in low precision, verified in high", "T1",
        (DRAW, "tokens.append(dice.pick(q_draft[-1].half()))")),
    bug("bonus-unwarped", "SafeAILab/EAGLE until bf10ac5",
        "the bonus token is drawn without temperature", "T1",
        (SCORE, "p_target = torch.cat([sampling(logits[:, :-1]), Sampling()(logits[:, -1:])], 1)")),
]

ROWS = [
    bug("resample-from-last-row", "romsto@53922df", "the replacement is the last node's", "T1",
        ("residual(p_target[b, accepted]", "residual(p_target[b, -1]")),
    bug("row-before", "generic", "the replacement comes from the node before", "T1",
        ("residual(p_target[b, accepted]",
         "residual(p_target[b, (accepted - 1).clamp(min=0)]")),
    bug("bonus-from-draft", "generic",
        "the last draft token's q_draft is subtracted from the bonus", "T1",
        ("F.pad(draft.q_draft[:, 1:], (0, 0, 0, 1))",
         "torch.cat([draft.q_draft[:, 1:], draft.q_draft[:, -1:]], 1)")),
]

RANDOMNESS = [
    bug("residual-reuses-accept-uniform", "vllm#47386, vllm-ascend#16370, flashinfer#424",
        "the draw from the residual takes the uniform by which its coin fell", "ledger",
        ("cumulative = weights",
         "self.column -= min(1, self.column); cumulative = weights"), file="dice"),
    bug("reseed-per-draw", "feifeibear", "every round starts the generator anew", "ledger",
        ("torch.rand(uniforms, generator=generator",
         "torch.rand(uniforms, generator=generator.manual_seed(0)"),
        file="dice"),
    bug("seed-ignored", "vllm#6038, vllm#10863", "the seed is not handed on", "reports",
        ("manual_seed(check_seed(seed)) for", "manual_seed(torch.seed() % 2 ** 31) for"),
        file="dice"),
]

CACHES = [
    bug("target-not-rolled-back", "generic; lucidrains@3194f53, mlx-lm#1109",
        "rejected tokens stay in the target's cache", "exact: chain, token",
        (ROLL_BACK, "kv_length = cache.kv.shape[3]; "
                    "cache.length = (cache.length + drafter.most + 1).clamp(max=kv_length - "
                    "drafter.most - 1) if cache.length.any() else text.length - 1")),
    bug("rolled-back-one-too-few", "generic",
        "one rejected token stays in the target's cache", "T1",
        (ROLL_BACK, "cache.length = text.length")),
    bug("draft-missing-last-accepted", "xllm#960, vllm#5765, vllm-metal#716",
        "after a round in which all was accepted the draft model never read its own last token",
        "T3 cache", ("text.last(lag)", "text.last(1)"), ("text.length - lag", "text.length - 1"),
        file="reader"),
    bug("prefix-fed-again", "feifeibear@81f7c13, romsto#1",
        "the last token is fed to a cache that has it", "T1",
        ("target(draft.tokens, cache", "target(torch.cat([text.last(2)[:, :1], draft.tokens[:, "
         "1:]], 1), cache")),
]

STOPPING = [
    bug("first-token-lost", "litgpt#2307", "the first token of the answer is dropped", "reports",
        (LEFT_OVER, f"first = left == max_new_tokens; {LEFT_OVER}; "
                    "done.emitted = done.emitted[first:]")),
    bug("rejected-kept", "lucidrains#3", "the text is not cut at the rejection", "T1",
        (CUT, "emitted, stopped = until(done.tokens[1:] + [done.token], stop)")),
    bug("eos-inside-block", "transformers#47912, romsto@97b82fb",
        "only a round's last token is looked at",
        "stops: chain, token", (CUT, "emitted, stopped = done.emitted, done.token in stop")),
    bug("overshoot", "litgpt#2308", "up to gamma tokens more than asked for", "reports",
        ("done.emitted = emitted[:left]", "done.emitted = emitted"),
        (LEFT_OVER, f"{LEFT_OVER}; left = max(0, left)")),
    bug("counted-after-the-rejection", "vllm#2658, sglang#11572",
        "coins after the rejection count as accepted", "reports",
        ("cls(tokens, parents, way,",
         "cls(tokens, parents, way + [node for node in range(len(way) + 2, n) "
         "if tokens[node] == tokens[-1]],")),
]

CONTROLS = [
    bug("argmax-draft-one-hot-q", "transformers, prompt lookup",
        "the argmax is drafted and reported as certain", "",
        (REPORT, f"{REPORT}; q_draft[-1] = {ONE_HOT}(q_draft[-1].argmax(-1), "
         "q_draft[-1].shape[-1]).to(q_draft[-1])")),
    bug("soft-draft-judged-as-one-hot", "vLLM without draft probabilities",
        "drawn from q_draft, accepted with p_target(x), replaced from p_target without x", "",
        ("x = draft.tokens[:, 1:, None]",
         "x, q_sum = draft.tokens[:, 1:, None], draft.q_draft.sum(-1, keepdim=True); draft = "
         f"Draft(draft.tokens, {ONE_HOT}(draft.tokens, p_target.shape[2]) * (q_sum > "
         "0).to(p_target))")),
    bug("no-bonus", "some trees",
        "where all draft tokens were accepted, nothing follows the last", "",
        (COUNT, COUNT + ".clamp(max=coins.shape[1] - 1)"),
        (LEFT, f"torch.where(coins.all(-1)[:, None], {ONE_HOT}(draft.tokens[:, -1], "
         f"p_target.shape[2]), {LEFT})")),
    bug("unnormalised-residual", "many", "weights of any total go to a sampler that normalises", "",
        (LEFT, f"7 * {LEFT}")),
    bug("sample-and-match", "transformers without candidate logits",
        "a target sample decides: a draft token that equals it is accepted, otherwise the sample "
        "is emitted", "", (COIN, "(drawn := dice.pick(p_target[:, :-1])) == draft.tokens[:, 1:]"),
        (LEFT, "torch.where((accepted < drawn.shape[1])[:, None], "
               f"{ONE_HOT}(drawn[b, accepted.clamp(max=drawn.shape[1] - 1)], p_target.shape[2]), "
               "p_target[b, accepted])")),
]

BUGS = ACCEPTANCE + RESIDUALS + DISTRIBUTIONS + ROWS + RANDOMNESS + CACHES + STOPPING
