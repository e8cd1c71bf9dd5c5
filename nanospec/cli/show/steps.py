"""One round at a time, with every coin: what `nanospec demo --step` shows. Marks as in
terminal.py.
"""

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text
from rich.tree import Tree as Branches
from torch import Tensor

from nanospec.cli.show.terminal import ACCEPTED, BONUS, REJECTED, REPLACEMENT, Decode, visible
from nanospec.dice import Dice
from nanospec.probs import residual
from nanospec.speculate import Round

Coin = tuple[float, float]          # u, and the probability that it had to stay below


class WatchedDice(Dice):
    """Dice that remember a round's coins, the first text's. The last ones are the rule's: one for
    every draft token, whether it was judged or not. A stack has flipped some before, for its middle
    model.
    """

    coins: list[Coin] = []

    def refill(self, columns):
        super().refill(columns)
        self.coins = []

    def flip(self, prob):
        column = self.column
        stands = super().flip(prob)
        u = self.u[0, column:column + prob.shape[1]]
        self.coins += zip(u.tolist(), prob[0].clamp(max=1).tolist())
        return stands


def judged(done: Round) -> dict[int, Tensor]:
    """Of every judged node, by what (V,): what its elder siblings left of p_target."""
    accepted, left, out = 0, done.p_target[0], {}
    for node, parent in enumerate(done.parents):
        if node and parent == accepted:
            out[node] = left
            accepted, left = (node, done.p_target[node]) if node in done.path else (
                accepted, residual(left, done.q_draft[node]))
    return out


def step_text(number: int, done: Round, coins: Sequence[Coin], decode: Decode) -> Group:
    """One round, slowly: every coin that was judged, and where a chain ends in a rejection what
    both models thought of the likeliest tokens.
    """
    head = Text(f"round {number}", "bold")
    if any(parent != node - 1 for node, parent in enumerate(done.parents)):
        return Group(head, tree_text(done, coins, decode), "")
    by, out = judged(done), Text()
    for node, token in enumerate(done.tokens[1:], 1):
        name = f"  {name_of(token, decode):16}"
        out.append_text(node_text(name, done, node, by, coins)).append("\n")
    out.append_text(last_text(f"  {name_of(done.token, decode):16}", done))
    return Group(head, out, *([chart(done, decode)] if done.rejected else []), "")


def tree_text(done: Round, coins: Sequence[Coin], decode: Decode) -> Branches:
    """Siblings under their parent, in the order in which they were drawn; the accepted path is
    marked, and so is every draft token that was tried and rejected.
    """
    by, branches, depth = judged(done), {0: Branches("after the text", guide_style="dim")}, {0: 0}
    for node, (token, parent) in enumerate(zip(done.tokens, done.parents)):
        if parent < 0:                          # the root, or a node that this text lacks
            continue
        depth[node] = depth[parent] + 1
        name = name_of(token, decode).ljust(22 - 4 * depth[node])   # so that columns stay columns
        branches[node] = branches[parent].add(node_text(name, done, node, by, coins))
    last = [0, *done.path][-1]
    branches[last].add(last_text(name_of(done.token, decode).ljust(18 - 4 * depth[last]), done))
    return branches[0]


def node_text(name: str, done: Round, node: int, by: dict[int, Tensor],
              coins: Sequence[Coin]) -> Text:
    if node not in by:
        return Text(f"{name} never judged", "dim")
    token, (u, prob) = done.tokens[node], coins[node - len(done.tokens)]
    style, sign, verdict = ((ACCEPTED, "<", "accepted") if node in done.path else
                            (REJECTED, "≥", "rejected"))
    eldest = done.parents.index(done.parents[node]) == node
    what = "p_target" if eldest else "residual"             # what an elder sibling left of it
    return Text.assemble((name, style), f" {what} {by[node][token]:.3f}  "
                         f"q_draft {done.q_draft[node, token]:.3f}  "
                         f"u = {u:.2f} {sign} {prob:.2f}  {verdict}")


def last_text(name: str, done: Round) -> Text:
    if done.rejected:
        return Text.assemble((name, REPLACEMENT),
                             " replacement, drawn from the residual distribution")
    return Text.assemble((name, BONUS), " bonus, drawn from p_target")


def chart(done: Round, decode: Decode, bars: int = 6) -> Table:
    """Where a chain was rejected, both distributions and the residual, at likely tokens."""
    last = len(done.path)
    p_target, q_draft = done.p_target[last], done.q_draft[last + 1]
    left = residual(p_target, q_draft)
    out = Table(box=None, padding=(0, 1, 0, 2))
    for name in ("token", "p_target", "", "q_draft", "", "residual"):
        out.add_column(name, header_style="dim", min_width=14 if not name else None)
    for token in (p_target + q_draft).topk(min(bars, len(p_target))).indices.tolist():
        p, q = p_target[token].item(), q_draft[token].item()
        if not p + q:                       # at temperature 0 two tokens are possible
            break
        style = REPLACEMENT if token == done.token else REJECTED if token in done.rejected else ""
        out.add_row(Text(name_of(token, decode), style), f"{p:.3f}",
                    Text("█" * round(14 * p), "cyan"), f"{q:.3f}",
                    Text("█" * round(14 * q), "yellow"), f"{left[token]:.3f}")
    return out


def name_of(token: int, decode: Decode) -> str:
    return repr(visible(decode([token])))
