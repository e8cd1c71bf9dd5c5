"""A deep and thin target, grown from a shallow one that has been trained.

Every layer of the shallow model becomes several of the deep one, one after the other, and its work
is dealt out to them. The MLP is a sum over its hidden units, so it can be cut: each new layer gets
a part of them. The first of the new layers gets the attention as well; in the others attention adds
nothing at first, since its output matrix is zero. (Growing in depth: Gong et al. 2019, PMLR 97; new
layers that begin at zero: Du et al. 2024, arXiv 2405.15319.)

Dealt out, the parts no longer read the same: the second reads what the first has added, too. In a
layer whose residual stream is large beside what it adds, this changes little. In the first layer it
changes everything, because the embedding is small beside what that layer adds. So the new layers
that replace it are fitted to it alone, for some minutes, before the whole model learns again.

Left out: growing in width.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from nanospec.cache import Call
from nanospec.errors import PairError
from nanospec.model import GPT, Config
from training.mixed import mixed

FITTED, RATE = 400, 3e-3    # steps in which the first layers are fitted; their top learning rate
WARM = 20                       # steps of rising learning rate


def grown(shallow: GPT, config: Config) -> GPT:
    """A GPT with this config, which does nearly what `shallow` does.

    PairError as check_growth. Where its hidden units are fewer in all, the smallest are dropped;
    where they are more, the others add nothing.
    """
    check_growth(shallow.config, config)
    deep, parts = GPT(config), config.layers // shallow.config.layers
    with torch.no_grad():
        for name in "embedding", "norm", *["head"] * (not config.tied):
            getattr(deep, name).load_state_dict(getattr(shallow, name).state_dict())
        for i, block in enumerate(shallow.blocks):
            deal_out(block, deep.blocks[parts * i:parts * (i + 1)])
    return deep


def check_growth(shallow: Config, deep: Config) -> None:
    """PairError unless `deep` has a multiple of the layers, and equal sizes but `hidden`."""
    same = ("vocab_size", "channels", "heads", "kv_heads", "head_size", "tied",
            "qkv_bias", "qk_norm")
    differs = [name for name in same if getattr(deep, name) != getattr(shallow, name)]
    if differs or deep.layers % shallow.layers:
        raise PairError(f"a target of {deep.layers} layers cannot grow from one of {shallow.layers}"
                        + f": other {', '.join(differs)}" * bool(differs))


def deal_out(block: Any, blocks: Iterable[Any]) -> None:
    """The weights of one Block to those that take its place."""
    thin = list(blocks)
    gate, up = block.mlp.gate_up.weight.chunk(2)                                # (hidden, C) each
    down = block.mlp.down.weight                                                # (C, hidden)
    # The largest first, and to each part in turn, so that the parts weigh the same.
    units = (gate.norm(dim=1) * up.norm(dim=1) * down.norm(dim=0)).argsort(descending=True)
    for j, new in enumerate(thin):
        new.attention_norm.load_state_dict(block.attention_norm.state_dict())
        new.mlp_norm.load_state_dict(block.mlp_norm.state_dict())
        if j:
            new.attention.out.weight.zero_()
        else:
            new.attention.load_state_dict(block.attention.state_dict())
        new_gate, new_up = new.mlp.gate_up.weight.chunk(2)
        mine = units[j::len(thin)][:len(new_gate)]
        new_gate[:len(mine)], new_up[:len(mine)] = gate[mine], up[mine]
        new.mlp.down.weight.zero_()
        new.mlp.down.weight[:, :len(mine)] = down[:, mine]


def fit_first(deep: GPT, shallow: GPT, texts: Callable[[int], Tensor],
              steps: int = FITTED) -> list[float]:
    """Fit the layers that replace the first one to it: by the squared error of what leaves them, as
    a part of its mean square. Returns that error after every step.

    texts(step): tokens (B, T) to read.
    """
    first = deep.config.layers // shallow.config.layers
    weights = list(deep.blocks[:first].parameters())
    optimizer, found = torch.optim.Adam(weights, betas=(0.9, 0.98)), []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / WARM) * (1 - step / steps)
        x = texts(step)
        with mixed(x):
            call = Call(deep.rope(x.shape[1]))
            state = deep.embedding(x).detach()
            with torch.no_grad():
                wanted = shallow.through(state, call, end=1)[0].float()
            state, _ = deep.through(state, call, end=first)
        error = (state.float() - wanted).square().mean() / wanted.square().mean()
        optimizer.zero_grad()
        error.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        found.append(error.item())
    return found
