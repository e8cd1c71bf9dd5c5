"""Bugs of layers that keep a state: which tokens it has read when the next round begins."""

from nanospec.proof.zoo.plant import bug

FORGET = "self.after.masked_fill_(self.after > self.length[:, None], -1)"
READ = "read.clamp(min=0), torch.where("

BUGS = [
    bug("state-that-read-rejected-tokens", "vllm-project/tpu-inference before #3178", "the target goes on from the "
        "state after all rows of the draft, whatever was accepted", "states",
        (FORGET, "self.after = torch.where(self.after == self.after.amax(1, keepdim=True), "
                 "self.length[:, None].clamp(min=0), -1)"), file="methods.models.recurrent"),
    bug("state-of-the-round-before", "vllm#52942", "accepted tokens are never read by the state that was kept before "
        "the round", "states", (READ, "self.length.clamp(min=0), torch.where("),
        file="methods.models.recurrent"),
    bug("every-row-the-first-row-s-count", "generic", "all texts of a batch go back as far as the first one",
        "state rows", (READ, "read.clamp(min=0)[:1].expand_as(read).minimum(self.length.clamp(min=0)), torch.where("),
        file="methods.models.recurrent"),
    bug("one-token-too-few-again", "generic", "the first of the accepted tokens is not read again", "state caches",
        (READ, "(read + (read < self.length) * (read > 0)).clamp(min=0), torch.where("),
        file="methods.models.recurrent"),
    bug("state-one-token-old", "generic", "every state that is kept lacks the last token that it is said to have read",
        "state caches", ("(after - read[:, None]).clamp(min=0)", "(after - read[:, None] - 1).clamp(min=0)"),
        file="methods.models.recurrent"),
]
