"""The pictures of lessons 17 to 23, one function for each."""

from collections.abc import Sequence

from matplotlib.patches import Rectangle

from .picture import AMBER, BLUE, FAINT, GREEN, HATCH, INK, MARK, RED, bars, blank, save


# Several futures

def a_tree(labels: Sequence[str], parents: Sequence[int], path: Sequence[int], token: str,
           mask: Sequence[Sequence[bool]]) -> None:
    """A round's tree, with what became of every node; beside it, which slots each node attends to: the text's last two
    tokens before node 0, and the nodes. token: what was drawn after the last accepted node."""
    figure, (left, right) = blank("one rejection does not end the draft: another child of that place was accepted", 2)
    depth, heights, leaves = [0] * len(labels), [0.0] * len(labels), 0
    children = [[node for node, parent in enumerate(parents) if parent == above] for above in range(len(labels))]
    for node in range(1, len(labels)):
        depth[node] = depth[parents[node]] + 1
    stack = [0]                                             # from the top down; leaves get a line of their own each
    while stack:
        node = stack.pop()
        if not children[node]:
            heights[node], leaves = -float(leaves), leaves + 1
        stack += reversed(children[node])
    for node in reversed(range(len(labels))):
        if children[node]:
            heights[node] = sum(heights[child] for child in children[node]) / len(children[node])
    last = [0, *path][-1]
    for node, label in enumerate(labels):
        elder = children[parents[node]] if node else []
        taken = next((child for child in elder if child in path), None)
        if node == 0 or node in path:
            colour, what = GREEN, "accepted" if node else "the text"
        elif parents[node] in (0, *path) and (taken is None or node < taken):
            colour, what = RED, "rejected"
        else:
            colour, what = FAINT, "not looked at"
        if node:
            above = parents[node]
            left.plot([depth[above], depth[node]], [heights[above], heights[node]], color=colour, zorder=1)
        left.text(depth[node], heights[node], f"{node}: {label}\n{what}", color=colour, ha="center", va="center",
                  zorder=2, fontsize=9, fontweight="bold" if colour == GREEN else "normal",
                  bbox={"facecolor": "white", "edgecolor": colour, "boxstyle": "round"})
    new = -float(leaves)
    left.plot([depth[last], depth[last] + 1], [heights[last], new], color=BLUE, linestyle=":", zorder=1)
    left.text(depth[last] + 1, new, f"{token}\n" + ("replacement" if children[last] else "bonus token"), color=BLUE,
              ha="center", va="center", fontsize=9, zorder=2,
              bbox={"facecolor": "white", "edgecolor": BLUE, "boxstyle": "round"})
    left.set(xlim=(-0.5, max(depth) + 0.6 + (depth[last] == max(depth))), ylim=(new - 0.6, 0.6), xticks=[], yticks=[])
    left.spines[["left", "bottom"]].set_visible(False)
    left.grid(False)
    right.imshow(mask, cmap="Greens", vmax=1.5, aspect="auto", zorder=3)
    right.set_yticks(range(len(labels)), [f"{node}: {label}" for node, label in enumerate(labels)])
    right.set_xticks(range(len(mask[0])), ["...", "text", *range(len(labels))])
    right.set(xlabel="the end of the text, and the nodes; filled: the node on the left attends to it")
    save(figure, "several_futures")


# Block verification

def block_verification(drafts: Sequence[str], parts: dict[str, Sequence[float]],
                       accepted_of: dict[str, Sequence[float]]) -> None:
    """parts: for every draft of two tokens, how often it is drafted, and accepted by either rule. accepted_of: of each
    rule, draft tokens accepted on average for gamma = 1, 2, ..."""
    figure, (left, right) = blank("judged as a whole, more tokens of the same drafts are accepted", 2)
    named = zip(parts, parts.values(), (FAINT, GREEN, BLUE))
    bars(left, drafts, *((heights, colour, name) for name, heights, colour in named))
    left.set(xlabel="draft of two tokens", ylabel="probability")
    for (name, means), colour in zip(accepted_of.items(), (BLUE, GREEN)):
        right.plot(range(1, len(means) + 1), means, color=colour, marker=MARK[colour], linewidth=2, label=name)
    right.set(xlabel="gamma, draft tokens in a round", ylabel="draft tokens accepted, on average")
    right.legend(frameon=False)
    save(figure, "block_verification")


# Copying from the past

def copying(calls: Sequence[tuple[Sequence[str], int]], places: Sequence[str],
            rates: dict[str, Sequence[float]]) -> None:
    """calls: the tokens of each round, and how many were copied. rates: drafter -> tokens per call, for each place."""
    figure, (left, right) = blank("where a text repeats itself, one call writes many copied tokens", 2)
    for y, (pieces, accepted) in enumerate(calls, start=1):
        for x, piece in enumerate(pieces):
            own = x >= accepted
            left.barh(y, 0.9, left=x - 0.45, color="white" if own else GREEN, edgecolor=BLUE if own else GREEN,
                      label="the target's own" if own else "copied")
            left.text(x, y, piece, color=BLUE if own else "white", ha="center", va="center", fontsize=8,
                      parse_math=False)
    left.set(ylim=(len(calls) + 0.5, 0.5), yticks=range(1, len(calls) + 1), xticks=[], ylabel="target call",
             xlabel="tokens written by a call")
    left.grid(False)
    seen = dict(zip(*reversed(left.get_legend_handles_labels())))
    left.legend(seen.values(), seen, frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    bars(right, places, *zip(rates.values(), (GREEN, FAINT, INK, BLUE, AMBER), rates))
    right.axhline(1, color=INK, linewidth=1)
    right.set_ylabel("tokens per target call (the target alone: 1)")
    save(figure, "copying_from_the_past")


# A tree where it is sure

def confident_tree(nodes: Sequence[tuple[Sequence[int], float, str, bool]]) -> None:
    """All nodes that were made: (path of tokens, confidence, the last token, is the node part of the draft?)."""
    figure, (axes,) = blank("the tree grows where the draft model is sure", 1)
    figure.set_size_inches(10.4, 4.6)
    below = {(): [path for path, *_ in nodes if len(path) == 1]}
    for above, *_ in nodes:
        below[above] = [path for path, *_ in nodes if path[:-1] == above and path]
    heights, stack, leaves = {}, [()], 0
    while stack:                                            # from the top down; leaves get a line of their own each
        path = stack.pop()
        if not below[path]:
            heights[path], leaves = -float(leaves), leaves + 1
        stack += reversed(below[path])
    for path in sorted(below, key=len, reverse=True):
        if below[path]:
            heights[path] = sum(heights[child] for child in below[path]) / len(below[path])
    for path, sure, word, chosen in [((), 1.0, "the text", True), *nodes]:
        colour = GREEN if chosen else FAINT
        if path:
            axes.plot([len(path) - 1, len(path)], [heights[path[:-1]], heights[path]], color=colour, zorder=1)
        axes.text(len(path), heights[path], f"{word}  {sure:.3f}" if path else word, color=colour, ha="center",
                  va="center", fontsize=9, fontweight="bold" if chosen else "normal", zorder=2, parse_math=False,
                  bbox={"facecolor": "white", "edgecolor": colour, "boxstyle": "round"})
    axes.set(xlim=(-0.5, max(map(len, below)) + 0.5), yticks=[], xticks=range(1, max(map(len, below)) + 1))
    axes.set_xlabel("level; each node has its confidence; in bold: the most confident nodes are the draft")
    axes.spines["left"].set_visible(False)
    axes.grid(False)
    save(figure, "a_tree_where_it_is_sure")


# What a stopping rule may see

def thrown_away(names: Sequence[str], p_target: Sequence[float], kept: dict[str, Sequence[float]],
                thrown: dict[str, Sequence[float]]) -> None:
    """What each token is made of: {what became of the draft token: a height for each token}, without and with a token
    that is thrown away."""
    figure, panels = blank("throw a draft token away because of what it is, and it comes out too seldom", 2)
    colours = {"accepted": GREEN, "rejected": AMBER, "thrown away": BLUE}
    labels = {"accepted": "draft token accepted", "rejected": "rejected: from the residual distribution",
              "thrown away": "thrown away: from p_target"}
    for axes, parts in zip(panels, (kept, thrown)):
        floor = [0.0] * len(names)
        for case, heights in parts.items():
            drawn = axes.bar(names, heights, 0.7, floor, color=colours[case], label=labels[case], edgecolor="white",
                             hatch=HATCH[BLUE] if case == "thrown away" else None)
            for label in axes.bar_label(drawn, [f"{height:.2f}" if height > 0.04 else "" for height in heights],
                                        label_type="center", color="white"):
                if label.get_text():                        # readable on the hatches
                    label.set_bbox({"facecolor": colours[case], "edgecolor": "none", "pad": 1.5})
            floor = [below + height for below, height in zip(floor, heights)]
        axes.bar(names, p_target, 0.7, fill=False, edgecolor=INK, linewidth=2, label="p_target")
        for x, (height, wanted) in enumerate(zip(floor, p_target)):
            right = abs(height - wanted) < 0.005
            axes.annotate(f"{height:.2f}" if right else f"{height:.2f}, not {wanted:.2f}",
                          (x, max(height, wanted)), xytext=(0, 4), textcoords="offset points",
                          ha="center", color=INK, fontweight="bold")
        axes.set(ylim=(0, 1.5 * max(p_target)), ylabel="probability that it comes out")
    panels[0].set_title("nothing is thrown away: every bar fills its frame", loc="left", fontsize=10)
    panels[1].set_title(f"\"{names[0]}\" is thrown away", loc="left", fontsize=10)
    panels[1].legend(frameon=False, loc="upper right")
    save(figure, "what_a_stopping_rule_may_see")


# When to stop

def when_to_stop(fixed: Sequence[tuple[float, float]], rules: dict[str, tuple[float, float]]) -> None:
    """(cost, tokens) of a mean round with gamma = 1, 2, 3, ..., and by each stopping rule; goodput among them."""
    figure, (axes,) = blank("a longer round writes more tokens, and costs more", 1)
    axes.plot(*zip(*fixed), color=FAINT, marker="o", linewidth=1, label=f"gamma 1 to {len(fixed)}")
    for gamma, point in enumerate(fixed, 1):
        axes.annotate(str(gamma), point, xytext=(0, -14), textcoords="offset points", ha="center", color=FAINT)
    for (name, point), colour in zip(rules.items(), (AMBER, BLUE, INK, GREEN)):
        axes.plot(*point, color=colour, marker=MARK[colour], markersize=10, linestyle="", label=name)
    cost, tokens = rules["goodput"]
    costs = [0.9 * min(at for at, _ in fixed), 1.03 * max(at for at, _ in fixed)]
    axes.plot(costs, [at * tokens / cost for at in costs], color=GREEN, linestyle=":", label="as fast as goodput")
    axes.margins(y=0.12)
    axes.set(xlabel="cost of a round, in target steps", ylabel="tokens of a round")
    axes.legend(frameon=False, loc="lower right")
    save(figure, "when_to_stop")


# What the target knows ahead

def heads(betas: dict[str, Sequence[float]]) -> None:
    """What each head of Medusa and of Hydra sees; and drafter -> beta of head 1, 2, ..."""
    figure, (left, right) = blank("what lies in between must be read: Medusa's heads fall faster than Hydra's", 2)
    count = len(next(iter(betas.values())))
    columns = ["hidden states\nbefore x", "x", *(f"draft\ntoken {k}" for k in range(1, count + 1))]
    for line in range(2 * count):
        kind, k = ("Medusa", "Hydra")[line // count], line % count + 1
        for column in range(len(columns)):
            seen = column == 0 or kind == "Hydra" and column <= k
            predicts = column == k + 1
            colour = GREEN if seen else AMBER if predicts else FAINT
            left.add_patch(Rectangle((column - 0.46, line - 0.4), 0.92, 0.8, color=colour,
                                     alpha=1.0 if seen or predicts else 0.2))
            left.text(column, line, "reads" if seen else "predicts" if predicts else "", color="white", ha="center",
                      va="center", fontsize=9)
    left.axhline(count - 0.5, color=INK, linewidth=1)
    left.set(xlim=(-0.5, len(columns) - 0.5), ylim=(2 * count - 0.5, -0.5), xticks=range(len(columns)),
             yticks=range(2 * count),
             yticklabels=[f"{kind}, head {k}" for kind in ("Medusa", "Hydra") for k in range(1, count + 1)])
    left.set_xticklabels(columns, fontsize=8)
    left.grid(False)
    for name, colour, line in zip(sorted(betas), (GREEN, BLUE, AMBER, FAINT), ("-", "-", "-", ":")):
        right.plot(range(1, count + 1), betas[name], color=colour, linestyle=line, marker=MARK[colour], linewidth=2,
                   label=name)
    right.set(xlabel="draft token", ylabel="beta on held-out text", xticks=range(1, count + 1),
              ylim=(0, 1.25 * max(map(max, betas.values()))))
    right.legend(frameon=False)
    save(figure, "what_the_target_knows_ahead")
