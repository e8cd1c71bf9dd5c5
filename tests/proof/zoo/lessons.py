"""Bugs of what stands beside a lesson. Of cascades, whose text is a mixture's; and of layers that keep a state: which
tokens it has read when the next round begins.
"""

from nanospec.proof.zoo.plant import Bug

FORGET = "self.after.masked_fill_(self.after > self.length[:, None], -1)"
READ = "read.clamp(min=0), torch.where("


class OfALesson(Bug):
    """Its file is a module of lessons/: lessons.cascade."""

    @property
    def module(self) -> str:
        return self.file


def cascade(name: str, source: str, what: str, *edits: tuple[str, str]):
    return OfALesson(f"cascade-{name}", source, what, "cascade", "lessons.cascade", edits)


def recurrent(name: str, source: str, what: str, caught_by: str, *edits: tuple[str, str]):
    return OfALesson(name, source, what, caught_by, "lessons.recurrent", edits)


BUGS = [
    cascade("bonus-from-the-target", "generic", "after the last draft token a bonus is drawn from p_target, not from "
            "the mixture", ("leaf = (child.gather(1, at) == 0) & (at > 0)", "leaf = at < 0")),
    cascade("replaced-from-the-target", "generic", "the mixture is accepted against, and p_target is what is left",
            ("rule(draft, pi, dice)", "rule(draft, torch.where(pi == draft.q_draft[row, child], pi, p_target), dice)")),
    cascade("mixture-of-the-node-before", "ours", "the draft model's distribution is the node's own, not its child's",
            ("draft.q_draft[row, child]", "draft.q_draft")),
    cascade("mixture-of-the-youngest-child", "ours", "of several children the last one's q_draft, which knows its "
            "elder siblings", ("(parents[:, None] == nodes[:, None]).long().argmax(-1)",
                         "((parents[:, None] == nodes[:, None]) * nodes).amax(-1)")),
    recurrent("state-that-read-rejected-tokens", "vllm-project/tpu-inference before #3178", "the target goes on from "
              "the state after all nodes of the draft, whatever was accepted", "states",
              (FORGET, "self.after = torch.where(self.after == self.after.amax(1, keepdim=True), "
                       "self.length[:, None].clamp(min=0), -1)")),
    recurrent("state-of-the-round-before", "vllm#52942", "accepted tokens are never read by the state that was kept "
              "before the round", "states", (READ, "self.length.clamp(min=0), torch.where(")),
    recurrent("every-row-the-first-row-s-count", "generic", "all texts of a batch go back as far as the first one",
              "state rows",
              (READ, "read.clamp(min=0)[:1].expand_as(read).minimum(self.length.clamp(min=0)), torch.where(")),
    recurrent("one-token-too-few-again", "generic", "the first of the accepted tokens is not read again",
              "state caches", (READ, "(read + (read < self.length) * (read > 0)).clamp(min=0), torch.where(")),
    recurrent("state-one-token-old", "generic", "every state that is kept lacks the last token that it is said to have "
              "read", "state caches",
              ("(after - read[:, None]).clamp(min=0)", "(after - read[:, None] - 1).clamp(min=0)")),
]
