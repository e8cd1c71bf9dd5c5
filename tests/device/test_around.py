"""What stands around a round, on the pretend GPU: the server, a conversation, loading, export, the clocks."""

import pytest
import torch

from nanospec.dice import Dice
from nanospec.fast.clock import draft_seconds, step_seconds
from nanospec.files.model_file import save_learned, save_model
from nanospec.files.checkpoint import Pair, load_pair
from nanospec.files.for_engines import export
from nanospec.files.huggingface import load_folder
from nanospec.files.tokenizer import Tokenizer
from nanospec.methods.index import DRAFTERS, method_of
from nanospec.methods.lengths.by_load import Costs, WatchedByLoad
from nanospec.probs import Sampling
from nanospec.proof.tables import small_gpt, small_learned
from nanospec.serving.conversation import Conversation
from nanospec.serving.request import PIECE
from nanospec.serving.server import Server
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from tests.device.pretend import NAME
from tests.device.test_rounds import DRAFT_MODEL, SETTINGS, TARGET
from tests.proof.compare import together

BYTES = Tokenizer({bytes([b]): b for b in range(256)})
# A prompt of several pieces, settings and lengths of their own; one request waits for a row.
ASKED = [{"ids": [2, 1, 3, 2, 1], "max_new_tokens": 16, "temperature": 0.8, "seed": 3},
         {"ids": [0, 1, 2, 3] * (PIECE // 3), "max_new_tokens": 4, "temperature": 0, "seed": 4},
         {"ids": [3], "max_new_tokens": 12, "temperature": 1.2, "top_k": 3, "seed": 5}]


def served(gpu, target, draft_model, name):
    """What is written, and how often each step that only wrote has waited."""
    drafter = method_of(target, draft_model, name, **SETTINGS).make()
    server = Server(target, drafter, rows=2)
    requests = [server.submit(**request) for request in ASKED]
    waits = []
    while not all(request.done for request in requests):
        before, reads = list(server.running), any(not prompt.read for prompt in server.waiting)
        gpu.taken()
        server.step()
        if server.running == before and not reads:
            waits.append(sum(transfer.waits for transfer in gpu.taken()))
    return [request.tokens for request in requests], waits


@pytest.mark.parametrize("name, most", [("chain", 1), ("by-load", 2), ("by-survival", 4), ("hybrid", 2), ("goodput", 6),
                                        ("stack", 8)])
def test_a_server(gpu, there, name, most):
    """Rows come and go, with settings of their own; the same tokens as on the CPU."""
    ours, waits = served(gpu, there(TARGET), there(DRAFT_MODEL), name)
    assert ours == served(gpu, TARGET, DRAFT_MODEL, name)[0]
    assert waits and max(waits) <= most


def test_a_server_with_a_learned_draft_model(gpu, there):
    target = there(TARGET)
    draft_model = small_learned("prefix", TARGET)
    assert served(gpu, target, there(draft_model, target), "chain")[0] == served(gpu, TARGET, draft_model, "chain")[0]


def test_a_conversation(gpu, there):
    """Three turns, of which each reads what is new."""
    wrote = []
    for target, draft_model in (TARGET, DRAFT_MODEL), (there(TARGET), there(DRAFT_MODEL)):
        talk = Conversation(target, ModelDrafter(draft_model, 3))
        for seed in range(3):
            list(talk.reply([2, seed, 3], max_new_tokens=6, temperature=0.8, seed=seed))
        wrote.append(talk.ids)
    assert wrote[0] == wrote[1]


def test_a_pair_is_loaded_and_exported(gpu, tmp_path):
    target, draft_model = (small_gpt(257, layers, layers, context=64).bfloat16() for layers in (2, 1))
    save_model(target, tmp_path / "target.pt", BYTES)
    save_model(draft_model, tmp_path / "draft.pt", BYTES)
    BYTES.save(tmp_path / "ranks.tiktoken")
    here, there = load_pair(tmp_path), load_pair(tmp_path, NAME)
    save_learned("prefix", small_learned("prefix", here.target), tmp_path / "prefix.pt", there.target)
    learned = load_pair(tmp_path, NAME, draft_model="prefix")
    assert learned.note == "" and learned.draft_model.device.type == there.draft_model.device.type == NAME
    for a, b in (here, there), (load_pair(tmp_path, draft_model="prefix"), learned):
        wrote = [tokens_of(speculate(pair.target, ModelDrafter(pair.draft_model, 2), [1, 2, 0], 5, seed=1))
                 for pair in (a, b)]
        assert wrote[0] == wrote[1]
    pytest.importorskip("safetensors")
    for name, pair in ("here", here), ("there", there):
        export(Pair(*pair), tmp_path / name)
    files = [path.relative_to(tmp_path / "here") for path in (tmp_path / "here").rglob("*") if path.is_file()]
    assert len(files) > 6
    assert all((tmp_path / "here" / file).read_bytes() == (tmp_path / "there" / file).read_bytes() for file in files)
    assert load_folder(tmp_path / "there" / "target", NAME).device.type == NAME


def test_the_clocks(gpu, there):
    """They time what is on the device, and a drafter that times its rounds waits for it."""
    target, draft_model = there(TARGET), there(DRAFT_MODEL)
    assert step_seconds(target, 3, 8, 2, repeats=1, warm_up=0) > 0 < draft_seconds(draft_model, 8, 2, repeats=1,
                                                                                   warm_up=0)
    learned = there(small_learned("mlp", TARGET), target)
    assert draft_seconds(learned, 8, 2, repeats=1, warm_up=0) > 0
    watched = WatchedByLoad(draft_model, Costs({1: [1.0, 1.0, 1.0]}), 2)
    assert len(tokens_of(speculate(target, watched, [1, 2, 3], 6))) == 6


@pytest.mark.parametrize("name", [name for name in DRAFTERS if name not in ("independent", "suffix", "confidence",
                                                                            "heuristic", "top", "lookup")])
def test_a_batch_of_texts_of_different_lengths(gpu, there, name):
    wrote = []
    for target, draft_model in (TARGET, DRAFT_MODEL), (there(TARGET), there(DRAFT_MODEL)):
        drafter, dice = method_of(target, draft_model, name, **SETTINGS).make(), Dice([1, 2], target.device)
        with torch.inference_mode():
            wrote.append(together(target, drafter, [[2, 1, 3], [0, 1, 1, 0, 1]], 3, dice, Sampling(0.8)))
    assert wrote[0] == wrote[1]
