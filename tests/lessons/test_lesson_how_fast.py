"""Their tables say what their own rounds, distributions and costs add up to. No clock is judged."""

import math
import re

import pytest
import torch

from shorter import shorter

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


def lines_of(out, heading, count):
    """The `count` lines below the line that starts with `heading`, cut where two blanks or more stand."""
    lines = out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(heading))
    return [re.split(r"\s{2,}", line.strip()) for line in lines[at + 1:at + 1 + count]]


def two(*numbers):
    return [f"{number:.2f}" for number in numbers]


@shorter(("held_out_prompts(pair, 4)", "held_out_prompts(pair, 2)"), ("ids, 16, seed", "ids, 8, seed"),
         ("islice(running, 12)", "islice(running, 8)"))
def test_how_fast(lesson, exchanged):
    names, out = lesson("how_fast", *exchanged)
    gammas, alpha, c, v = (names[name] for name in ("gammas", "alpha", "c", "v"))
    betas, accepted = [], {gamma: [len(done.path) for done in names["rounds"][gamma]] for gamma in gammas}
    for gamma in gammas:                                    # alpha by the other road: 1 - total variation
        for done in names["rounds"][gamma]:
            off = (done.p_target[:gamma] - done.q_draft[1:]).abs().sum(-1) / 2
            betas += (1 - off)[:min(len(done.path) + 1, gamma)].tolist()
    assert abs(alpha - sum(betas) / len(betas)) < 1e-5 and f"alpha {alpha:.3f}" in out
    assert 0.3 < alpha < 0.95 and all(0 <= n <= gamma for gamma in gammas for n in accepted[gamma])

    said = lines_of(out, "gamma   tokens per call, Eq. 1", len(gammas))
    shown = lines_of(out, "gamma   tokens per call     +-", len(gammas))
    for gamma, formula, clock, speed in zip(gammas, said, shown, names["measured"], strict=True):
        mean = sum(accepted[gamma]) / len(accepted[gamma]) + 1
        eq1 = (1 - alpha ** (gamma + 1)) / (1 - alpha)
        free, real = eq1 / (gamma * c + 1), eq1 / (gamma * c + v[gamma + 1])
        assert formula == [str(gamma), *two(eq1, free, real)]
        assert clock[:2] + clock[3:] == [str(gamma), *two(mean, eq1, real, speed)]
        assert abs(mean - eq1) < 6 * float(clock[2]) + 0.05, "what is counted has nothing to do with what is foretold"
    assert [float(line[1]) for line in said] == sorted(float(line[1]) for line in said)
    assert abs(names["free"][0] - (1 + alpha) / (1 + c)) < 1e-12
    assert all(math.isfinite(number) and number > 0 for number in [c, *v.values(), *names["measured"]])

    for words, speeds in [("if verification is free", "free"), ("with the v measured here", "real"),
                          (r"\(mind the", "measured")]:     # the verdicts follow the numbers
        best, = re.findall(rf"(\d+) {words}", out)
        assert names[speeds][gammas.index(int(best))] == max(names[speeds])
    firsts = [places[0] for gamma in gammas for places in map(names["judged"], names["rounds"][gamma])]
    assert lines_of(out, "draft token of the round", 1)[0][1] == f"{sum(firsts) / len(firsts):.2f}"
    assert f"a round takes {names['overhead']:.2f} times as long" in out
    assert "This machine is busy" not in out                # the clocks are stubs, and as quick at the end


@pytest.mark.usefixtures("packed")
@shorter(("len(windows) < 10", "len(windows) < 5"), ("texts[:4, :64]", "texts[:2, :64]"),
         ("start, 64, seed", "start, 40, seed"), ("read(texts, 4)", "read(texts[:2], 4)"))
def test_good_where_it_matters(lesson, exchanged):
    names, out = lesson("good_where_it_matters", *exchanged)
    alpha, places, shares = names["alpha"], names["places"], []
    for i, line in enumerate(lines_of(out, "what stands there", len(places))):
        name = list(places)[i]
        shares.append(places[name].double().mean().item())
        assert line == [name, f"{shares[i]:.1%}", *two(*(means[i] for means in alpha.values()))]
    code, prose = list(places).index("ALL CODE"), list(places).index("ALL PROSE")
    assert abs(sum(shares[:code]) - 1) < 1e-9 and abs(shares[code] + shares[prose] - 1) < 1e-9
    for means in alpha.values():                            # a mean of means, weighted by how often
        assert abs(sum(s * m for s, m in zip(shares[:6], means)) - shares[code] * means[code]) < 1e-5

    shipped, of_code, of_prose = alpha.values()
    assert of_code[code] > 1.2 * of_prose[code] and of_prose[prose] > 1.2 * of_code[prose], "no draft model has a home"
    assert min(shipped) > max(*of_code, *of_prose)
    kinds = list(places)
    again, first = (shipped[kinds.index(kind)] for kind in ("name, again", "name"))
    assert abs(again - first) < 0.2, "the lesson says that the draft model gains little where a name could be copied"
    assert not torch.allclose(names["bigrams"](names["is_prose"]), names["bigrams"](~names["is_prose"]))

    # tokens per call, read from the very texts whose rounds were counted; by hand for one draft token
    counts, own = names["counts"], torch.tensor(names["own"])
    error = (sum((count - sum(counts) / len(counts)) ** 2 for count in counts) / (len(counts) - 1) / len(counts)) ** .5
    estimate = names["read"](own, 4, since=63)
    assert abs(estimate - sum(counts) / len(counts)) < 5 * error and sum(counts) == own[:, 64:].numel()
    read = lines_of(out, "gamma 4", 3)
    windows = names["texts"][:2 if exchanged else None]
    assert [line[-1] for line in read] == two(names["read"](windows, 4), estimate, sum(counts) / len(counts))
    p_target, q_draft = (names["distributions"](model, own[:1])[0] for model in (names["target"], names["draft_model"]))
    x, begins, calls = own[0, 1:, None], 1.0, 0.0
    for chance in (q_draft.gather(-1, x) / p_target.gather(-1, x)).clamp(max=1)[:, 0].tolist():
        calls, begins = calls + begins, 1 - begins * chance
    assert names["read"](own[:1], 1) == pytest.approx(len(x) / calls, rel=1e-4)

    beta, pieces = names["beta"], names["pieces"]           # of the snippet: the picture's colours
    assert len(beta) == len(pieces) and "".join(pieces) == names["SNIPPET"]
    assert beta.min() >= 0 and beta.max() <= 1 + 1e-6 and beta.max() - beta.min() > 0.5
    assert [len(line) for line in names["grid"]] == [len(line) for line in names["lines"]]
    ends = [len("".join(pieces[:i + 1])) for i in range(len(pieces))]

    def token_at(character):
        return next(i for i, end in enumerate(ends) if end > character)

    word = names["SNIPPET"].index("def add")                # in line 7, column 4
    assert names["grid"][7][4] == pytest.approx(beta[token_at(word)].item()), "`def` has another place's colour"
    lowest = lines_of(out, "after", 8)
    assert [line[-1] for line in lowest] == two(*beta.sort().values[:8].tolist())
    word = [kind for _, kind in names["labelled"]("x = x  # y")]
    assert word[0] == "name" and "sign" in word and "name, again" in word and word[-1] == "comment"

    ids, at = names["ids"], token_at(names["SNIPPET"].index("self.limit = limit") + len("self.limit = "))
    p, q = (names["distributions"](model, ids)[0, at, ids[0, at + 1]].item()
            for model in (names["target"], names["draft_model"]))
    assert p > 0.5 > 2 * q, "the lesson says that the target copies `limit`, and that the draft model does not"
