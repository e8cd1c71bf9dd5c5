"""Heads, and trees of their guesses: what is printed of them follows from their own distributions."""

import pytest
import torch

from shorter import shorter

from nanospec.methods.draft_models.losses import total_variation
from nanospec.methods.draft_models.unrolled import whole_texts
from tests.printed import lines_from

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


@shorter(("train_texts[::7], 40", "train_texts[::7], 12"), ("held_out[::2], 6", "held_out[::2], 4"),
         ("256 - 63", "256 - 31"), ("slice(at, at + 64)", "slice(at, at + 32)"),
         ("train(medusa, 120)", "train(medusa, 25)"), ("attach(target), 80)", "attach(target), 35)"))
def test_what_the_target_knows_ahead(lesson, exchanged):
    names, out = lesson("what_the_target_knows_ahead", *exchanged)
    medusa, hydra, test, before, p_test = (names[name] for name in (
        "medusa", "hydra", "test", "before_test", "p_test"))
    target, last = names["target"], names["last"]

    # the hidden states before a token are those of the token before it; the distributions are those after a token
    with torch.no_grad():
        logits, hidden = target(test[:1], layers=[last])
    assert (names["before_test"][:1, 1:] - hidden[:, :-1]).abs().max() < 1e-4 and not before[:, 0].any()
    assert (p_test[0] - logits[0].softmax(-1)).abs().max() < 1e-4

    # beta by the other road, with the label k places on: 1 - total variation
    found = names["found"]
    for name, model in {"Medusa's heads": medusa, "Hydra's heads": hydra}.items():
        log_q = whole_texts(model, test, before, 3).log_softmax(-1)
        places = test.shape[1] - 2
        for k in range(3):
            off = total_variation(p_test[:, k:k + places].log(), log_q[k])
            assert abs(found[name][k] - (1 - off.mean().item())) < 1e-4
    for name, line in found.items():
        assert all(shown[1:] == [f"{beta:.2f}" for beta in line] for shown in lines_from(out, name))
    mean, of_medusa, of_hydra, of_prefix = found.values()
    assert of_medusa[0] > 1.5 * mean[0]                                         # something is known, and soon forgotten
    assert of_medusa[0] - mean[0] > 1.7 * (of_medusa[1] - mean[1]) > 1.2 * (of_medusa[2] - mean[2])
    assert all(ours > 1.1 * theirs for ours, theirs in zip(of_hydra, of_medusa))
    assert of_hydra[1] > 1.3 * of_medusa[1] and of_hydra[2] > 1.3 * of_medusa[2]
    assert of_hydra[2] / of_hydra[0] > 1.2 * of_medusa[2] / of_medusa[0]        # the picture's title
    assert min(of_prefix) > 0.9 * max(of_prefix)                                # it reads all that is before

    # the wrong label leaves nothing to learn, the right one does
    h = target.norm(before[:, 1:, 0])
    for part, learns in ((slice(1, None), True), (slice(None, -1), False)):
        W = torch.zeros_like(names["zero"], requires_grad=True)
        loss = -(p_test[:, part] * names["head"](W, h).log_softmax(-1)).sum(-1).mean()
        loss.backward()
        assert (W.grad.abs().max().item() > 1e-2) == learns, W.grad.abs().max()
        assert learns or W.grad.abs().max() < 1e-4
    assert f"{names['right_label']:.3f}" in out and f"{names['wrong_label']:.3f}" in out

    # the tree: what is promised, and what is counted, by hand
    accuracies, tree = names["accuracies"], names["tree"]
    assert accuracies[0] == sorted(accuracies[0], reverse=True) and len(tree) == 9
    ranked, places = names["ranked"].tolist(), names["places"]
    texts, total = test.tolist(), 0
    for b, text in enumerate(texts):
        for i in range(places):
            paths = [[]]
            for node, parent in enumerate(tree[1:], 1):
                at = len(paths[parent])
                paths.append(paths[parent] + [ranked[at][b][i][tree[1:node].count(parent)]])
            total += 1 + max(len(path) for path in paths if path == text[i + 1:i + 1 + len(path)])
    counted = total / (len(texts) * places)
    assert abs(counted - names["counted"](tree)) < 1e-9
    assert lines_from(out, "a tree of eight") == [["a tree of eight", f"{names['expected']:.2f}", f"{counted:.2f}"]]
    assert names["expected"] == pytest.approx(counted, abs=0.15)
    assert counted > names["counted"]([-1, 0, 1, 2]) + 0.05
