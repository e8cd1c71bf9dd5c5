"""An EAGLE-3 head of ours as others open it: in the format of speculators, which vLLM reads, or in
SpecForge's, which SGLang reads.

In their words a layer's number is that of the layer which its stream *enters*: ours plus one
(SGLang adds that one itself). Each of the three streams is normed before they are fused (fc_norm,
with weights of one), and the next step reads the normed state (norm_output); both came with what
vLLM calls EAGLE-3.1. What differs: before token 0 we read zeros, and they have no such place. Left
out: DFlash. Theirs norms queries and keys, and has the embedding of a token as its mask.
"""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from nanospec.files.huggingface import config_json, names, write_folder
from nanospec.methods.draft_models.eagle3 import Eagle3

ENGINES = {"vllm": "layers.0.", "sglang": "midlayer."}  # how the names of its layer's weights begin
FORMAT = "0.9.0"                                        # of speculators, which this was tried with


def save_eagle3(model: Eagle3, folder: Path, verifier: str, engine: str = "vllm") -> None:
    """Write a head on three layers, in its own data type. verifier: what its target is called where
    it will be served.

    OSError when it cannot be written.
    """
    config = config_for_vllm(model, verifier) if engine == "vllm" else config_for_sglang(model)
    write_folder(folder, tensors_of(model, engine), config)


def tensors_of(model: Eagle3, engine: str) -> dict[str, Tensor]:
    """Its weights under their names: what is stacked here is cut."""
    assert model.config is not None
    state, layer = model.state_dict(), ENGINES[engine]
    named = {"fc.weight": state["fuse.weight"], "norm.weight": state["norm.weight"],
             "lm_head.weight": state["head.weight"],
             f"{layer}input_layernorm.weight": state["layer.token_norm.weight"],
             f"{layer}hidden_norm.weight": state["layer.state_norm.weight"],
             **{f"fc_norm.{i}.weight": torch.ones_like(state["norm.weight"]) for i in range(3)}}
    if len(model.ids) < model.vocab_size:       # vLLM has no place for them where they say nothing
        drafted = torch.zeros(model.vocab_size, dtype=torch.bool, device="cpu")
        named |= {"d2t": state["offsets"], "t2d": drafted.index_fill(0, model.ids.cpu(), True)}
    for name, parts in names(model.config):     # the rest of the layer is a Llama's
        ours = name.replace("blocks.0.", "layer.")
        if ours.startswith("layer.") and ours in state:
            cut = state[ours].split([shape[0] for shape in parts.values()])
            named |= {part.replace("model.layers.0.", layer): weight
                      for part, weight in zip(parts, cut)}
    if engine == "vllm":                                    # SGLang takes the target's
        named["embed_tokens.weight"] = model.target.embedding.weight
    return {name: weight.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, weight in named.items()}


def layer_config(model: Eagle3) -> dict:
    """config.json of a Llama of one layer, with the target's vocabulary."""
    assert model.config is not None
    return config_json(replace(model.config, context=model.target.config.context, tied=False))


def config_for_vllm(model: Eagle3, verifier: str) -> dict:
    """config.json in the format of speculators."""
    return {
        "speculators_model_type": "eagle3", "architectures": ["Eagle3Speculator"],
        "speculators_version": FORMAT, "draft_vocab_size": len(model.ids), "fc_norm": True,
        "norm_output": True, "norm_before_residual": False, "norm_before_fc": False,
        "embed_requires_grad": False, "target_hidden_size": None,
        "eagle_aux_hidden_state_layer_ids": [layer + 1 for layer in model.layers],
        "transformer_layer_config": layer_config(model),
        "speculators_config": {
            "algorithm": "eagle3", "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": model.steps,
                                  "verifier_accept_k": 1, "accept_tolerance": 0.0}],
            "verifier": {"name_or_path": verifier,
                         "architectures": config_json(model.target.config)["architectures"]}}}


def config_for_sglang(model: Eagle3) -> dict:
    """config.json in SpecForge's format."""
    return layer_config(model) | {
        "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": len(model.ids),
        "fc_norm": True, "norm_output": True,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(model.layers),
                         "use_aux_hidden_state": True}}
