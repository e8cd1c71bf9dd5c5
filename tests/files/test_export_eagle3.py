"""Our EAGLE-3 in the formats of others: every tensor, every word of the config, and what both compute.

The forward here is theirs, written from the formats' own words and not from our model. Where NANOSPEC_ENGINES names a
folder in which `speculators` is an environment with speculators 0.9.0, transformers 5.19 and torch, the library itself
is asked, too.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from nanospec.errors import PairError
from nanospec.files.model_file import save_learned, save_model
from nanospec.files.checkpoint import Pair, load_pair
from nanospec.cli.export import main
from nanospec.files.for_engines import export
from nanospec.files.huggingface import save_folder
from nanospec.files.tokenizer import Tokenizer
from nanospec.files.tokenizer_json import save_tokenizer
from nanospec.methods.draft_models.eagle3 import Eagle3
from nanospec.methods.draft_models.unrolled import before_tokens, whole_texts
from nanospec.proof.tables import small_gpt

pytest.importorskip("safetensors", reason="safetensors is not installed (the extra 'hf')")
pytest.importorskip("tokenizers", reason="tokenizers is not installed (the extra 'hf')")
BYTES = Tokenizer({bytes([b]): b for b in range(256)})
V, C, HEADS, KV, HIDDEN, SPOKEN = 257, 16, 4, 2, 20, 101
TABLE = {                                   # ENGINES' table: name, shape, and our name
    "fc.weight": ((C, 3 * C), "fuse.weight"), "norm.weight": ((C,), "norm.weight"),
    "lm_head.weight": ((SPOKEN, C), "head.weight"), "d2t": ((SPOKEN,), "offsets"), "t2d": ((V,), None),
    "fc_norm.0.weight": ((C,), None), "fc_norm.1.weight": ((C,), None), "fc_norm.2.weight": ((C,), None)}
OF_LAYER = {
    "input_layernorm": ((C,), "token_norm"), "hidden_norm": ((C,), "state_norm"),
    "self_attn.q_proj": ((C, 2 * C), None), "self_attn.k_proj": ((C // 2, 2 * C), None),
    "self_attn.v_proj": ((C // 2, 2 * C), None), "self_attn.o_proj": ((C, C), "attention.out"),
    "post_attention_layernorm": ((C,), "mlp_norm"), "mlp.gate_proj": ((HIDDEN, C), None),
    "mlp.up_proj": ((HIDDEN, C), None), "mlp.down_proj": ((C, HIDDEN), "mlp.down")}

SPECULATORS = Path(os.environ.get("NANOSPEC_ENGINES", "")) / "speculators" / "bin" / "python"
THEIR_FORWARD = """
import sys, torch
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
head, room = sys.argv[1:]
config = Eagle3SpeculatorConfig.from_pretrained(head)
config.transformer_layer_config._attn_implementation = "eager"
model = Eagle3DraftModel.from_pretrained(head, config=config, dtype=torch.float32).eval()
tokens, before = torch.load(room + "/asked.pt")
with torch.inference_mode():
    guesses = torch.cat(model(before.flatten(2), tokens, torch.zeros_like(tokens), ttt_steps=5))
torch.save(guesses + model.d2t[guesses], room + "/guesses.pt")
"""


@pytest.fixture
def pair():
    """A target of 6 layers, and a head on 1, 3 and 5 that drafts 101 of 257 tokens."""
    target = small_gpt(V, 6, 3)
    torch.manual_seed(5)
    head = Eagle3(V, C, [1, 3, 5], heads=HEADS, kv_heads=KV, hidden=HIDDEN, spoken=SPOKEN)
    for weight in head.parameters():
        weight.data = torch.randn_like(weight) * 0.3 + (weight.dim() == 1)
    head.to(target.dtype).attach(target).prepare(torch.arange(V).repeat_interleave(torch.randint(1, 9, (V,))))
    return Pair(target, head.requires_grad_(False), BYTES)


@pytest.fixture
def folder(pair, tmp_path):
    """The pair as train_tiny.py leaves it."""
    (tmp_path / "ours").mkdir()
    save_model(pair.target, tmp_path / "ours" / "target.pt", BYTES)
    BYTES.save(tmp_path / "ours" / "ranks.tiktoken")
    save_learned("eagle3", pair.draft_model, tmp_path / "ours" / "eagle3.pt", pair.target)
    return tmp_path / "ours"


def written(folder):
    from safetensors.torch import load_file
    return load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("engine, prefix", [("vllm", "layers.0."), ("sglang", "midlayer.")])
def test_every_tensor_of_the_table(pair, tmp_path, engine, prefix):
    assert export(pair, tmp_path, engine=engine) == [tmp_path / "target", tmp_path / "eagle3"]
    found, _ = written(tmp_path / "eagle3")
    table = TABLE | {f"{prefix}{name}.weight": (shape, ours and f"layer.{ours}.weight")
                     for name, (shape, ours) in OF_LAYER.items()}
    table |= {"embed_tokens.weight": ((V, C), None)} if engine == "vllm" else {}
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} == {
        name: shape for name, (shape, _) in table.items()}
    state = pair.draft_model.state_dict()
    for name, (_, ours) in table.items():
        assert ours is None or torch.equal(found[name], state[ours]), name
    qkv = torch.cat([found[f"{prefix}self_attn.{part}_proj.weight"] for part in "qkv"])
    gate_up = torch.cat([found[f"{prefix}mlp.{part}_proj.weight"] for part in ("gate", "up")])
    assert torch.equal(qkv, state["layer.attention.qkv.weight"])
    assert torch.equal(gate_up, state["layer.mlp.gate_up.weight"])
    assert all((found[f"fc_norm.{i}.weight"] == 1).all() for i in range(3))
    assert found["t2d"].dtype == torch.bool and found["d2t"].dtype == torch.int64
    assert found["t2d"].nonzero()[:, 0].tolist() == (found["d2t"]
                                                     + torch.arange(SPOKEN)).tolist() == [*pair.draft_model.ids]
    assert engine == "sglang" or torch.equal(found["embed_tokens.weight"], pair.target.embedding.weight)


def test_a_head_that_drafts_all_tokens_says_nothing_of_which(pair, tmp_path):
    whole = Eagle3(V, C, [1, 3, 5], heads=HEADS, kv_heads=KV, hidden=HIDDEN, spoken=V).attach(pair.target)
    export(pair._replace(draft_model=whole), tmp_path)
    tensors, said = written(tmp_path / "eagle3")
    assert not {"d2t", "t2d"} & tensors.keys() and said["draft_vocab_size"] == V


def test_every_word_of_the_configs(pair, tmp_path):
    export(pair, tmp_path / "v")
    export(pair, tmp_path / "s", engine="sglang")
    layer = {"model_type": "llama", "vocab_size": V, "hidden_size": C, "num_hidden_layers": 1, "num_attention_heads": 4,
             "num_key_value_heads": KV, "head_dim": 4, "intermediate_size": HIDDEN, "hidden_act": "silu",
             "rms_norm_eps": 1e-5, "rope_theta": 10_000.0, "rope_scaling": None, "tie_word_embeddings": False,
             "max_position_embeddings": 96}
    said = written(tmp_path / "v" / "eagle3")[1]
    assert "model_type" not in said                         # else transformers would look for it
    of_layer, of_method = said.pop("transformer_layer_config"), said.pop("speculators_config")
    assert of_layer == layer | {"architectures": ["LlamaForCausalLM"]}
    assert said == {
        "speculators_model_type": "eagle3", "architectures": ["Eagle3Speculator"], "speculators_version": "0.9.0",
        "draft_vocab_size": SPOKEN, "fc_norm": True, "norm_output": True, "norm_before_residual": False,
        "norm_before_fc": False, "embed_requires_grad": False, "target_hidden_size": None, "dtype": "float64",
        "eagle_aux_hidden_state_layer_ids": [2, 4, 6]}
    assert of_method == {
        "algorithm": "eagle3", "default_proposal_method": "greedy", "proposal_methods": [
            {"proposal_type": "greedy", "speculative_tokens": 5, "verifier_accept_k": 1, "accept_tolerance": 0.0}],
        "verifier": {"name_or_path": str(tmp_path / "v" / "target"), "architectures": ["LlamaForCausalLM"]}}
    said = written(tmp_path / "s" / "eagle3")[1]
    assert said == layer | {
        "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": SPOKEN, "fc_norm": True, "norm_output": True,
        "dtype": "float64", "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 5],
                                             "use_aux_hidden_state": True}}


def theirs(tensors, said, embedding, streams, tokens, further):
    """Logits (T, V) after tokens (T,), and after `further` (one token), as the formats' words have it.

    streams: those that enter the layers which the config names, (T, 3, C), of the token before each.
    """
    of_layer = said["transformer_layer_config"]
    heads, kv_heads, size = (of_layer[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim"))

    def normed(x, name, layer="layers.0."):
        scale = (x.pow(2).mean(-1, keepdim=True) + of_layer["rms_norm_eps"]).sqrt()
        return x / scale * tensors[f"{layer}{name}.weight"]

    def times(x, name):
        return x @ tensors[f"layers.0.{name}_proj.weight"].T

    def turned(x, positions):                               # (T, heads, size), rotated by halves
        angle = positions[:, None] * of_layer["rope_theta"] ** (-torch.arange(0, size, 2).double() / size)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def step(state, tokens, positions, keys, values):
        both = torch.cat([normed(embedding[tokens], "input_layernorm"), normed(state, "hidden_norm")], -1)
        q, k, v = (times(both, f"self_attn.{part}").unflatten(-1, (-1, size)) for part in "qkv")
        keys, values = torch.cat([keys, turned(k, positions)]), torch.cat([values, v])
        wide = [part.repeat_interleave(heads // kv_heads, 1) for part in (keys, values)]
        scores = torch.einsum("qhd,khd->hqk", turned(q, positions), wide[0]) / size ** 0.5
        unseen = torch.arange(len(keys)) > positions[:, None]
        found = torch.einsum("hqk,khd->qhd", scores.masked_fill(unseen, float("-inf")).softmax(-1), wide[1])
        state = state + times(found.flatten(1), "self_attn.o")
        x = normed(state, "post_attention_layernorm")
        state = state + times(F.silu(times(x, "mlp.gate")) * times(x, "mlp.up"), "mlp.down")
        state = normed(state, "norm", layer="")             # norm_output
        return state, keys, values

    def logits(state):
        all_of_them = torch.full((len(state), len(tensors["t2d"])), float("-inf"), dtype=state.dtype)
        ids = torch.arange(said["draft_vocab_size"]) + tensors["d2t"]
        all_of_them[:, ids] = state @ tensors["lm_head.weight"].T
        return all_of_them

    none = torch.empty(0, kv_heads, size, dtype=embedding.dtype)
    fused = torch.cat([normed(streams[:, i], f"fc_norm.{i}", layer="") for i in range(3)], -1) @ tensors["fc.weight"].T
    first, keys, values = step(fused, tokens, torch.arange(len(tokens)), none, none)
    second, *_ = step(first[-1:], further, torch.tensor([len(tokens)]), keys, values)
    return logits(first), logits(second)


@torch.inference_mode()
def test_what_was_written_computes_what_ours_does(pair, tmp_path):
    """The streams are caught where they enter the layers that the config names."""
    export(pair, tmp_path)
    tensors, said = written(tmp_path / "eagle3")
    tokens, entered = torch.randint(V, (1, 20), generator=torch.Generator().manual_seed(1)), {}
    for number in said["eagle_aux_hidden_state_layer_ids"]:
        part = pair.target.blocks[number] if number < 6 else pair.target.norm
        part.register_forward_pre_hook(lambda _, args, number=number: entered.update({number: args[0]}))
    _, hidden = pair.target(tokens, layers=pair.draft_model.layers)
    caught = before_tokens(torch.stack([entered[number] for number in sorted(entered)], 2))
    ours = whole_texts(pair.draft_model, tokens, before_tokens(hidden), 2)                # anchors 0 to 18
    found = theirs(tensors, said, tensors["embed_tokens.weight"], caught[0, :19], tokens[0, :19], tokens[0, 19:])
    for mine, other in (ours[0][0], found[0]), (ours[1][0, -1:], found[1]):
        assert torch.equal(mine.isinf(), other.isinf()) and mine.isinf().any()
        assert (mine - other)[~mine.isinf()].abs().max() < 1e-9


@pytest.mark.skipif("NANOSPEC_ENGINES" not in os.environ or not SPECULATORS.exists(),
                    reason="NANOSPEC_ENGINES names no folder with an environment of speculators")
@torch.inference_mode()
def test_speculators_itself_makes_our_guesses(pair, tmp_path):
    """Its own forward, on every token of a text, five guesses from each. It unrolls as our training does: every later
    guess reads the text's own tokens.
    """
    pair.target.float()
    pair.draft_model.float()
    export(pair, tmp_path)
    tokens = torch.randint(V, (1, 96), generator=torch.Generator().manual_seed(1))
    before = before_tokens(pair.target(tokens, layers=pair.draft_model.layers)[1])
    ours = whole_texts(pair.draft_model, tokens, before, 5)[:, 0].argmax(-1)                  # (5, anchors)
    torch.save((tokens, before), tmp_path / "asked.pt")
    subprocess.run([SPECULATORS, "-c", THEIR_FORWARD, tmp_path / "eagle3", tmp_path], check=True, timeout=600,
                   env=os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": ""})
    assert len(ours.unique()) > 20
    assert torch.equal(torch.load(tmp_path / "guesses.pt")[:, :ours.shape[1]], ours)


@pytest.mark.parametrize("options, prefix", [([], "layers.0."), (["--for", "sglang"], "midlayer.")])
def test_the_command_writes_target_and_head_of_ours(folder, tmp_path, capsys, options, prefix):
    out = tmp_path / "out"
    assert main([str(out), "--weights", str(folder), "--draft-model", "eagle3", *options]) == 0
    assert capsys.readouterr().out == f"{out / 'target'} and {out / 'eagle3'} written\n"
    tensors, said = written(out / "eagle3")
    assert said["dtype"] == "float32" and tensors["fc.weight"].dtype == torch.float32
    assert f"{prefix}hidden_norm.weight" in tensors
    assert load_pair(out).target.config == load_pair(folder, draft_model="eagle3").target.config  # the target is whole
    assert main([str(out), "--weights", str(folder), "--draft-model", "eagle3"]) == 2
    assert "target is there already" in capsys.readouterr().err


def test_a_head_for_a_target_of_others_names_it(pair, tmp_path, capsys):
    """The target stays where it is; the head alone is written."""
    theirs, out = tmp_path / "theirs", tmp_path / "out"
    save_tokenizer(BYTES, theirs)
    save_folder(pair.target, theirs, 256)
    save_learned("eagle3", pair.draft_model, theirs / "eagle3.pt", pair.target)
    assert main([str(out), "--weights", str(theirs), "--draft-model", "eagle3"]) == 0
    assert [path.name for path in out.iterdir()] == ["eagle3"]
    said = written(out / "eagle3")[1]["speculators_config"]["verifier"]
    assert said == {"name_or_path": str(theirs), "architectures": ["LlamaForCausalLM"]}
    (out / "eagle3" / "config.json").unlink()
    assert main([str(out), "--weights", str(theirs), "--draft-model", "eagle3", "--for", "sglang"]) == 2
    assert "eagle3 is there already" in capsys.readouterr().err


def test_what_cannot_be_exported(pair, tmp_path, capsys):
    two = Eagle3(V, C, [1, 5], heads=HEADS, kv_heads=KV, hidden=HIDDEN, spoken=SPOKEN).attach(pair.target)
    with pytest.raises(PairError, match="reads 2 layers"):
        export(pair._replace(draft_model=two), tmp_path / "x")
    assert not (tmp_path / "x").exists()
    assert main([str(tmp_path / "y"), "--draft-model", "eagle3"]) == 2            # none ships
    assert "holds no eagle3.pt" in capsys.readouterr().err and not (tmp_path / "y").exists()
