"""What learned draft models are trained by, and what a look says of them: against plain loops over the places.

A look goes through parts of unequal size, and drafts after some tokens alone; one of the models drafts some tokens
alone, one has a part of its loss for its states, and no two read the same layers.
"""

from types import SimpleNamespace

import pytest
import torch

from nanospec.files.corpus import HeldOut
from nanospec.methods.draft_models.losses import forward_kl
from nanospec.methods.draft_models.unrolled import learned_loss
from nanospec.methods.draft_models.unrolled import before_tokens, unrolled, whole_texts
from nanospec.proof.tables import small_gpt, small_learned
from train_tiny import batch_at
from training.learning import Batch, LearnedTraining, Plan

TARGET = small_gpt(11, 3, 5)
LENGTH, STEPS = 12, 5                   # of a text; how many draft tokens a look goes through
LAYERS = {"mlp": [1], "eagle": [2], "eagle3": [0, 2]}


def random_counts(rows: int, length: int) -> torch.Tensor:
    """Which tokens count, about two in three."""
    return torch.rand(rows, length, generator=torch.Generator().manual_seed(rows)) < 0.65


def counts(counted, text: int, place: int) -> bool:
    """Whether the token after this place does; the one after the last token does if that one does."""
    return counted is None or bool(counted[text, min(place + 1, counted.shape[1] - 1)])


def test_each_block_of_the_target_is_compiled_and_the_loss(monkeypatch):
    """For one size: of every step it is the same."""
    heard, block = [], SimpleNamespace(compile=lambda dynamic: heard.append(dynamic))
    monkeypatch.setattr(torch, "compile", lambda work, dynamic: (work.func, work.args, dynamic))
    its = SimpleNamespace(frozen=SimpleNamespace(blocks=[block, block]), model="a draft model")
    LearnedTraining.compile(its)
    assert heard == [False, False] and its.learned_loss == (learned_loss, ("a draft model",), False)


@pytest.mark.parametrize("counted", [None, random_counts(2, 9)], ids=["all", "some count"])
@pytest.mark.parametrize("name, anchors", [("eagle", None), ("eagle", [1, 4]), ("eagle3", None), ("eagle3", [1, 4])])
def test_the_losses_by_hand(name, anchors, counted):
    """EAGLE's has a part for its states. EAGLE-3's draft tokens count .8 of the one before, and it is judged by what it
    can draft, with the target's probabilities as they are. Only tokens that count do, and the states that predict one.
    """
    tokens = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(5))
    model = small_learned(name, TARGET)
    logits, hidden = TARGET(tokens, layers=model.layers)
    found = learned_loss(model, tokens, hidden, logits.log_softmax(-1), forward_kl,
                         None if anchors is None else torch.tensor(anchors), counted).item()
    drafted = unrolled(model, tokens, before_tokens(hidden), model.steps)
    places, losses = anchors or range(9 - model.steps + 1), []
    for k, (_, q_draft) in enumerate(drafted):
        of_places = []
        for text, a in ((text, a) for text in range(2) for a in places if counts(counted, text, a + k)):
            p = logits[text, a + k].softmax(-1)[... if model.ids is None else model.ids]
            of_places.append((p * (p.log() - q_draft[text, a].log_softmax(-1))).sum().item())
        losses.append(sum(of_places) / len(of_places))
    weights = [0.8 ** k for k in range(model.steps)]
    expected = sum(weight * loss for weight, loss in zip(weights, losses)) / sum(weights)
    if name == "eagle":
        off = drafted[0][0][:, places] - TARGET.norm(hidden[:, places, -1])
        states = torch.where(off.abs() < 1, off ** 2 / 2, off.abs() - 0.5).mean(-1)
        of_places = [states[text, i].item() for text in range(2) for i, a in enumerate(places)
                     if counts(counted, text, a)]
        expected = sum(of_places) / len(of_places) + 0.1 * losses[0]
    assert found == pytest.approx(expected, rel=1e-6)


def test_where_no_token_counts_nothing_is_lost():
    """As in a part of a batch where nobody answers; not the ratio of two zeros, which would end the training."""
    tokens, model = torch.tensor([[3, 1, 4, 2, 7, 5, 9]]), small_learned("eagle", TARGET)
    logits, hidden = TARGET(tokens, layers=model.layers)
    assert learned_loss(model, tokens, hidden, logits.log_softmax(-1), forward_kl, counted=tokens > 10).item() == 0


@pytest.mark.parametrize("steps, look", [(10, 100), (1999, 100), (4500, 225)])
def test_it_looks_twenty_times_and_not_more_often_than_every_hundred_steps(steps, look):
    assert Plan("mlp", {}, TARGET.config, steps=(steps,)).look == look


@pytest.fixture(params=LAYERS)
def training(request, tmp_path, monkeypatch):
    """In float32; after two or three tokens of every text."""
    monkeypatch.setattr("nanospec.fast.mixed.bfloat16_is_faster", lambda device: False)
    target, name = small_gpt(11, 3, 5, context=LENGTH).float().requires_grad_(False), request.param
    sizes = small_learned(name, TARGET).sizes | {"layers": LAYERS[name]}
    del sizes["vocab_size"], sizes["channels"]
    ids = torch.randint(11, (300,), generator=torch.Generator().manual_seed(6))
    plan = Plan(name, sizes, target.config, steps=(9,), rate=(1.0,), batch=2, written=8)
    found = LearnedTraining(target, plan, 3, ids, None, tmp_path, loss="forward-kl")
    found.step, found.model.anchors = 4, 3
    return found


@pytest.mark.parametrize("counted", [None, random_counts(5, LENGTH)], ids=["all", "some count"])
def test_a_look_is_a_mean_over_texts_places_and_draft_tokens(training, counted):
    """Five texts in parts of two: the last one counts as much as each of the others."""
    ids = torch.randint(11, (5 * LENGTH + 1,), generator=torch.Generator().manual_seed(7))
    if counted is None:
        (off, *accepted), words = training.look(HeldOut(ids, len(ids)), 5)
    else:
        parts = zip(ids[:-1].view(5, LENGTH).split(2), counted.split(2))
        (off, *accepted), words = training.looked(Batch(part, *training.of_target(part), some) for part, some in parts)
    model, found = training.model, [[] for _ in range(STEPS)]
    for first, part in zip((0, 2, 4), ids[:-1].view(5, LENGTH).split(2)):
        logits, hidden = training.target(part, layers=model.layers)
        stride = (LENGTH - STEPS + 1) // 3
        places = range(part.sum().item() % stride, LENGTH - STEPS + 1, stride)
        q_draft = whole_texts(model, part, before_tokens(hidden), STEPS).softmax(-1)
        for k, text, a in ((k, text, a) for k in range(STEPS) for text in range(len(part)) for a in places):
            if counts(counted, first + text, a + k):
                found[k].append(logits[text, a + k].softmax(-1).minimum(q_draft[k, text, a]).sum().item())
    shares = [sum(of_step) / len(of_step) for of_step in found]
    assert accepted == pytest.approx(shares, abs=1e-5) and off == pytest.approx(1 - sum(shares) / STEPS, abs=1e-5)
    assert words == "accepted " + " ".join(f"{share:.3f}" for share in accepted)


def test_a_step_is_what_it_loses(training):
    """On the batch of its own seed and step, one of its two texts written by the target, with the hidden states of its
    own layers, after some tokens.
    """
    written = torch.randint(11, (8, LENGTH), generator=torch.Generator().manual_seed(8))
    training.written = written.int()
    x = torch.stack([batch_at(training.ids, 4, 2, LENGTH, seed=3)[0][1], written[4]])
    model = training.model
    logits, hidden = training.target(x, layers=model.layers)
    places = LENGTH - model.steps + 1
    stride = places // 3
    anchors = torch.arange(x.sum().item() % stride, stride * (places // stride), stride)
    expected = learned_loss(model, x, hidden, logits.log_softmax(-1), forward_kl, anchors).item()
    assert training.loss().item() == pytest.approx(expected, rel=1e-5)
