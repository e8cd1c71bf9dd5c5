"""The pictures of lessons 33 to 43, one function for each."""

from collections.abc import Sequence

from .picture import AMBER, BLUE, FAINT, GREEN, INK, MARK, RED, bars, blank, save


# Mixing on purpose

def mixing_on_purpose(cascades: dict[str, dict[float, tuple[float, float]]],
                      cuts: dict[float, tuple[float, float]]) -> None:
    """Deferral rule -> threshold -> (right, accepted); and the target's, by its top-p."""
    figure, (axes,) = blank("a cascade buys acceptance with quality", 1)
    figure.set_size_inches(9, 5)
    lines = {**{f"cascade {name}, from the left a =": some for name, some in cascades.items()},
             "the target, from below top-p": cuts}
    for (name, some), colour in zip(lines.items(), (AMBER, BLUE, RED, GREEN)):
        right, accepted = zip(*some.values())
        axes.plot(accepted, right, color=colour, marker=MARK[colour], linewidth=2,
                  label=f"{name} {', '.join(map(str, some))}")
    axes.set(xlabel="how often a draft token is accepted", ylabel="how often the next token is the author's")
    axes.legend(frameon=False)
    save(figure, "mixing_on_purpose")


# Copy or ask

def copy_or_ask(matches: Sequence[int], copies: dict[float, Sequence[float]], chains: dict[float, float]) -> None:
    """At each T, tokens for a target step's time: of a copy after each match, and of the draft model's chain."""
    figure, (axes,) = blank("a long match beats the draft model's word, where texts repeat themselves", 1)
    figure.set_size_inches(9.4, 5)
    for (T, some), colour in zip(copies.items(), (GREEN, AMBER)):
        axes.plot(matches, some, color=colour, linewidth=2, label=f"a copy, T = {T:g}")
        axes.axhline(chains[T], color=colour, linestyle="--", linewidth=1.5, label=f"the chain, T = {T:g}")
    axes.axhline(1, color=INK, linestyle=":", linewidth=1, label="plain decoding")
    axes.set(xlabel="tokens that agree", ylabel="tokens for a target step's time", ylim=(0, None))
    axes.legend(frameon=False, loc="center right")
    save(figure, "copy_or_ask")


# A model that people know

def a_model_that_people_know(betas: dict[str, Sequence[float]], calls: dict[str, tuple[float, float]]) -> None:
    """Request -> acceptance at draft token 1, 2, ...; and its tokens per call with the draft model and with copies."""
    figure, (left, right) = blank("SmolLM2: what is easy to foresee", 2)
    for (kind, column), colour in zip(betas.items(), (BLUE, AMBER, GREEN)):
        left.plot(range(1, len(column) + 1), column, marker=MARK[colour], color=colour, label=kind)
    left.set(ylim=(0, 1), xlabel="draft token of a round", ylabel="how often it is accepted",
             xticks=range(1, 1 + max(map(len, betas.values()))))
    left.legend(frameon=False)
    bars(right, list(calls), ([both[0] for both in calls.values()], BLUE, "draft model"),
         ([both[1] for both in calls.values()], AMBER, "copies"))
    right.set_ylabel("tokens per call of the target")
    save(figure, "a_model_that_people_know")


# How close a rule can come

def ceilings(chain: dict[str, Sequence[float]], place: dict[str, Sequence[float]]) -> None:
    """chain: draft tokens accepted on average for gamma = 1, 2, ...; place: how often one of k draft tokens of a place
    is accepted. A name that ends in "ceiling" is the most that any rule accepts."""
    figure, (left, right) = blank("the better rule comes nearer to its ceiling; none passes it", 2)
    kinds = {"without replacement": (INK, GREEN), "independent": (RED, BLUE, AMBER), "": (INK, GREEN, BLUE)}
    for axes, means in (left, chain), (right, place):
        colours = {}
        for name in reversed(means):                        # a ceiling first, then the rules below it
            kind = name.rpartition(", ")[0]
            colour = next(colours.setdefault(kind, iter(kinds.get(kind, (FAINT,)))))
            axes.plot(range(1, len(means[name]) + 1), means[name], ":" if name.endswith("ceiling") else "-",
                      marker=MARK[colour], linewidth=2, color=colour, label=name)
        axes.legend(frameon=False)
    left.set(xlabel="gamma, draft tokens in a round", ylabel="draft tokens accepted, on average")
    right.set(xlabel="k, draft tokens for one place", ylabel="probability that one is accepted", xticks=range(1, 6))
    save(figure, "how_close_a_rule_can_come")


# Mistakes that no text shows

def what_shows_a_mistake(gaps: dict[str, Sequence[float]]) -> None:
    """Reader -> the greatest difference that each of three checks finds."""
    figure, (axes,) = blank("the text is exact with every reader; two other checks tell the wrong ones", 1)
    checks = ["the text", "token by token", "after some rounds"]
    bars(axes, checks, *(([max(gap, 1e-17) for gap in found], colour, name) for (name, found), colour in zip(
        gaps.items(), (GREEN, RED, AMBER))))
    axes.set_yscale("log")
    axes.set_ylabel("greatest difference of a probability")
    save(figure, "mistakes_that_no_text_shows")


# A look back

def a_look_back(seen: Sequence[Sequence[float]], places: Sequence[str], draft_tokens: Sequence[str],
                betas: dict[str, dict[bool, Sequence[float]]]) -> None:
    """seen: for each draft token, how much it looks at each place of the text. betas: draft model -> of places where
    the next token can be copied, and of others -> of its 1st, 2nd, ... draft token."""
    figure, (left, right) = blank("a draft token that looks back can copy", 2)
    figure.set_size_inches(12.4, 4.6)
    most = max(map(max, seen))
    for number, weights in enumerate(seen):
        for place, weight in enumerate(weights):
            left.barh(number, 1, 0.9, left=place - 0.5, color=GREEN, alpha=weight / most)
        place = weights.index(max(weights))
        left.text(place + 0.9, number, repr(places[place]), color=INK, va="center", fontsize=11, parse_math=False)
    left.set(xlabel="place in the text", xlim=(-0.5, len(places) - 0.5),
             ylim=(len(seen) - 0.5, -0.5), yticks=range(len(seen)), yticklabels=draft_tokens, ylabel="draft token")
    left.grid(False)
    left.set_title("where each draft token looks; what stands at the darkest place", loc="left", color=INK, fontsize=10)
    for (name, found), colour in zip(betas.items(), (GREEN, AMBER)):
        for kind, line, where in (True, "-", "can be copied"), (False, ":", "other places"):
            right.plot(range(1, len(found[kind]) + 1), found[kind], color=colour, linestyle=line,
                       marker=MARK[colour], linewidth=2, label=f"{name}, {where}")
    right.set(xlabel="draft token", ylabel="beta on held-out text", ylim=(0, 1.05),
              xticks=range(1, 1 + len(found[kind])))
    right.legend(frameon=False, loc="lower left")
    save(figure, "a_look_back")


# A draft for the draft

def a_draft_for_the_draft(costs: Sequence[float], gains: dict[str, Sequence[float]], here: float) -> None:
    """Lowest model -> at each c of the middle model, what the third level gains, 0.1 for a tenth. here: a c."""
    figure, (axes,) = blank("a third level helps little: a cheap model needs none, an expensive one is left out", 1)
    figure.set_size_inches(9.4, 5)
    for (name, some), colour, line in zip(gains.items(), (AMBER, BLUE, GREEN), ("-", "--", "-.")):
        axes.plot(costs, [100 * gain for gain in some], color=colour, linestyle=line, linewidth=2, label=name)
    axes.axvline(here, color=INK, linestyle=":", linewidth=1)
    top = 145 * max(map(max, gains.values()))
    axes.annotate("our draft GPT", (here, 0.94 * top), xytext=(3, 0), textcoords="offset points", color=INK)
    axes.set(xlabel="c of the middle model (its step in target steps)", xlim=(0, costs[-1]), ylim=(0, top),
             ylabel="gain over the best two levels, %, by the formula")
    axes.legend(title="lowest model", alignment="left", frameon=False, loc="upper right")
    save(figure, "a_draft_for_the_draft")


# Into the world

def into_the_world(found: dict[str, Sequence[int]]) -> None:
    """Of each way to write a text: how many tokens stood there after each call of the target."""
    figure, (axes,) = blank("the same gamma, the same rounds: two programs agree call by call", 1)
    styles = (FAINT, "-", 3), (AMBER, "-", 3), (GREEN, "-", 5), (BLUE, ":", 3)
    for (name, grown), (colour, line, width) in zip(found.items(), styles):
        axes.step(range(len(grown) + 1), [0, *grown], where="post", color=colour, linestyle=line, linewidth=width,
                  label=name)
    axes.set(xlabel="calls of the target", ylabel="tokens written")
    axes.legend(frameon=False)
    save(figure, "into_the_world")


# What the text may be

def what_the_text_may_be(alpha: dict[tuple[str, float], float]) -> None:
    """(who is masked, T) -> alpha."""
    figure, (axes,) = blank("a grammar helps the draft model if the draft model knows it", 1)
    names = list(dict.fromkeys(name for name, _ in alpha))
    bars(axes, [f"T = {T}" for T in (0, 1)], *(([alpha[name, T] for T in (0, 1)], colour, name)
                                               for name, colour in zip(names, (FAINT, GREEN, AMBER))))
    axes.set(ylim=(0, 1.25), yticks=[i / 5 for i in range(6)],
             ylabel="alpha, how often a draft token is accepted")
    save(figure, "what_the_text_may_be")


# Another vocabulary

def another_vocabulary(cuts: dict[str, list[tuple[str, bool]]]) -> None:
    """Tokenizer -> the tokens of one line, and whether each is a token of the other tokenizer, too."""
    figure, (axes,) = blank("one line, two tokenizers: dotted tokens are not in the other one", 1)
    figure.set_size_inches(10.4, 2.6)
    for height, tokens in enumerate(reversed(cuts.values())):
        left = 0
        for text, shared in tokens:
            axes.barh(height, len(text) - 0.1, 0.5, left=left, color=GREEN if shared else AMBER,
                      hatch="" if shared else "..", edgecolor="white")
            axes.text(left + len(text) / 2, height - 0.42, text.replace(" ", "·"), ha="center", va="center", color=INK,
                      family="monospace", fontsize=9)
            left += len(text)
    axes.set(ylim=(-0.7, 1.5), xticks=[], yticks=range(len(cuts)), yticklabels=[*reversed(cuts)])
    axes.grid(False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=0)
    save(figure, "another_vocabulary")


# A state that cannot go back

def states_kept(costs: dict[tuple[int, str], tuple[int, float, float]]) -> None:
    """(gamma, way) -> bytes of states, tokens read in a round, tokens written in a round."""
    figure, (left, right) = blank("two ways back: more memory, or more tokens", 2)
    figure.set_size_inches(12, 4.4)
    for way, colour in (("snapshots", BLUE), ("replay", GREEN)):
        of_way = [(gamma, *found) for (gamma, name), found in costs.items() if name == way]
        gammas, sizes, read, _ = zip(*of_way)
        left.plot(gammas, [size / 1e3 for size in sizes], color=colour, marker=MARK[colour], linewidth=2, label=way)
        right.plot(gammas, read, color=colour, marker=MARK[colour], linewidth=2, label=way)
    left.set(xlabel="gamma: draft tokens in a round", ylabel="kB of states for a text", ylim=(0, None))
    right.set(xlabel="gamma: draft tokens in a round", ylabel="tokens that the target reads in a round", ylim=(0, None))
    left.legend(frameon=False)
    save(figure, "a_state_that_cannot_go_back")
