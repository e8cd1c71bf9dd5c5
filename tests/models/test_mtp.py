"""Multi-token prediction: what the layer learns together with its target. What it drafts, and that the text stays the
target's, is in the contract and in test_learned.py, by its name.
"""

import argparse
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import train_tiny
from nanospec.files.checkpoint import load_pair
from nanospec.methods.draft_models.eagle import MTP
from nanospec.proof.tables import small_gpt, small_learned
from nanospec.training.with_mtp import WEIGHT, loss_with

TARGET = small_gpt(11, 3, 5)
TEXT = Path(argparse.__file__)


def test_the_joint_loss_by_hand():
    """The token after every place by the target, and the one after some places by the layer, which has read one of the
    target's tokens less.
    """
    mtp = small_learned("mtp", TARGET)
    mtp.anchors = 3
    ids = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(1))
    x, y = ids[:, :-1], ids[:, 1:]
    logits, hidden = TARGET(x, layers=mtp.layers)
    own, more = F.cross_entropy(logits.flatten(0, 1), y.flatten()), []
    for length in range(1 + x.sum().item() % 2, 9, 2):                  # of 8 places every second one
        before = torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, :length - 1]], 1)
        h = mtp.last_hidden(before)
        both = torch.cat([mtp.token_norm(mtp.embedded(x[:, :length])), mtp.state_norm(h)], -1)
        q, k, v = mtp.attention.turned(mtp.attention_norm(mtp.fuse(both)), mtp.rope(length))
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        z = mtp.fuse(both) + mtp.attention.out(found.transpose(1, 2).flatten(2))
        z = mtp.norm(z + mtp.mlp(mtp.mlp_norm(z)))[:, -1]
        more.append(F.cross_entropy(TARGET.head(z), ids[:, length]))
    assert abs(loss_with(TARGET, mtp, x, y) - own - WEIGHT * torch.stack(more).mean()) < 1e-6


def test_both_learn_by_it():
    """The layer's loss alone reaches every weight of the target, but those after its last hidden states have none."""
    target = small_gpt(11, 2, 5).requires_grad_(True)
    mtp = MTP(11, 16, [1], heads=2, kv_heads=1, hidden=24).double().attach(target)
    x = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(2))
    loss_with(target, mtp, x[:, :-1], x[:, 1:]).backward()
    both = {name: weight.grad.clone() for name, weight in target.named_parameters()}
    assert all(weight.grad.abs().max() > 0 for weight in mtp.parameters())
    target.zero_grad()
    F.cross_entropy(target(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()).backward()
    assert all((both[name] - weight.grad).abs().max() > 1e-6 for name, weight in target.named_parameters())


def test_the_command_trains_them_together_and_resumes(tmp_path, monkeypatch):
    """Stopped before the first step and resumed: target.pt, draft.pt and mtp.pt, which belong together."""
    monkeypatch.setattr(train_tiny, "report", lambda *of: None)
    order = ["--what", "pair", "mtp", "--size", "dust", "--steps", "2", "1", "1", "--text", str(TEXT),
             "--device", "cpu", "--out", str(tmp_path)]
    assert train_tiny.main([*order, "--minutes", "0"]) == 0
    begun = load_pair(tmp_path, draft="mtp")
    assert train_tiny.main([*order, "--resume"]) == 0
    done = load_pair(tmp_path, draft="mtp")
    assert isinstance(done.draft, MTP) and done.draft.target is done.target
    for before, after in ((begun.target, done.target), (begun.draft, done.draft)):
        assert any((one != other).any() for one, other in zip(before.parameters(), after.parameters()))
    assert load_pair(tmp_path).draft.config == train_tiny.SIZES["dust"].draft


def test_what_is_refused(capsys):
    assert train_tiny.main(["--what", "pair", "mlp"]) == 2
    assert "each is trained alone, but for pair mtp" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("size", ["heads", "hidden"])
def test_its_layer_is_as_the_target_s(size):
    assert MTP.sizes_for(TARGET.config)[size] == getattr(TARGET.config, size)
