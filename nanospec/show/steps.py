"""One round at a time, with every coin: what --step of demo.py shows. Marks as in terminal.py."""

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text
from rich.tree import Tree as Branches
from torch import Tensor

from nanospec.dice import Dice
from nanospec.probs import without
from nanospec.speculate import TreeRound
from nanospec.show.terminal import BONUS, KEPT, REFUSED, REPLACED, Decode, visible
from nanospec.speculate import Round


class WatchedDice(Dice):
    """Dice that remember a round's coins: (u, prob) of row 0, for those who want to see them fall."""

    coins: list[tuple[float, float]] = []

    def refill(self, columns):
        super().refill(columns)
        self.coins = []

    def flip(self, prob):
        column = self.column
        fell = super().flip(prob)
        self.coins += zip(self.u[0, column:column + prob.shape[1]].tolist(), prob[0].tolist())
        return fell


def step_text(number: int, one: Round, coins: Sequence[tuple[float, float]], decode: Decode, bars: int = 6) -> Group:
    """One round, slowly: every judged coin, and at a refusal what both models thought of the likeliest tokens."""
    head = Text(f"round {number}", "bold")
    if isinstance(one, TreeRound):
        return Group(head, tree_text(one, coins, decode), "")
    out = Text()
    for i, token in enumerate(one.drafted):
        if i > one.kept:
            out.append(f"  {name_of(token, decode):16} never judged", "dim").append("\n")
        else:
            said = coin_text(f"  {name_of(token, decode):16}", token, one.p_target[i], one.q_draft[i], coins[i])
            out.append_text(said).append("\n")
    out.append_text(last_text(one, f"  {name_of(one.token, decode):16}", "drawn from max(0, p_target - q_draft)"))
    if not one.refused:
        return Group(head, out, "")
    p_target, q_draft = one.p_target[one.kept], one.q_draft[one.kept]
    chart = Table(box=None, padding=(0, 1, 0, 2))
    for name in ("token", "p_target", "", "q_draft", "", "residual"):
        chart.add_column(name, header_style="dim", min_width=14 if not name else None)
    for token in (p_target + q_draft).topk(min(bars, len(p_target))).indices.tolist():
        p, q = p_target[token].item(), q_draft[token].item()
        style = REPLACED if token == one.token else REFUSED if token in one.refused else ""
        chart.add_row(Text(name_of(token, decode), style), f"{p:.3f}", Text("█" * round(14 * p), "cyan"),
                      f"{q:.3f}", Text("█" * round(14 * q), "yellow"), f"{max(0, p - q):.3f}")
    return Group(head, out, chart, "")


def tree_text(one: TreeRound, coins: Sequence[tuple[float, float]], decode: Decode) -> Branches:
    """Siblings under their parent, in the order in which they were drawn; the path that was kept is marked, and so is
    every guess that was tried and fell. A sibling is judged by what those before it have left of p_target.
    """
    coins, path, judged, depth = iter(coins), [0, *one.path], {}, [0]
    for row in path:                                        # in the order in which the rule tried them
        left = one.p_target[row]
        for child, parent in enumerate(one.parents):
            if parent == row:
                judged[child] = left, next(coins)
                if child in path:
                    break
                left = without(left, one.q_draft[child - 1])
    branches = [Branches("behind the text", guide_style="dim")]
    for row, token in enumerate(one.drafted, 1):
        depth.append(depth[one.parents[row]] + 1)
        name = name_of(token, decode).ljust(24 - 4 * depth[row])        # so that the columns stay columns
        said = Text(f"{name} never judged", "dim")
        if row in judged:
            left, coin = judged[row]
            said = coin_text(name, token, left, one.q_draft[row - 1], coin)
        branches.append(branches[one.parents[row]].add(said))
    name = name_of(one.token, decode).ljust(20 - 4 * depth[path[-1]])
    branches[path[-1]].add(last_text(one, name, "drawn from what is left of p_target"))
    return branches[0]


def coin_text(name: str, token: int, p_target: Tensor, q_draft: Tensor, coin: tuple[float, float]) -> Text:
    u, prob = coin
    kept = u < prob
    return Text.assemble((name, KEPT if kept else REFUSED),
                         f" p_target {p_target[token]:.3f}  q_draft {q_draft[token]:.3f}   "
                         f"u = {u:.2f} {'<' if kept else '≥'} {prob:.2f}  {'keep' if kept else 'refuse'}")


def last_text(one: Round, name: str, how: str) -> Text:
    return Text.assemble((name, REPLACED), f" {how}") if one.refused else Text.assemble(
        (name, BONUS), " bonus, drawn from p_target")


def name_of(token: int, decode: Decode) -> str:
    return repr(visible(decode([token])))
