"""Draft models of others that are no language models of their own: EAGLE's and other heads, which
read their target's hidden states. They are known, so that they can be refused by name.
"""

import re
from pathlib import Path
from typing import Any

from nanospec.errors import PairError
from nanospec.files.paths import read_json
from nanospec.files.safetensors_files import read_header

# Names in draft models of others that read hidden states, and in no Llama.
OF_A_HEAD = re.compile(r"(model\.)?(fc\.|d2t|t2d|midlayer\.|medusa|\d+\.|layers\.0\.hidden_norm)")
HEAD_OF_OTHERS = ("{} is an EAGLE head or another draft model that reads the target's hidden "
                  "states. Those of others are not read here; python -m training eagle3 --weights "
                  "... trains one")


def check_no_head(folder: Path) -> None:
    """PairError for a draft model that reads its target's hidden states, by its config or by the
    names of its weights.
    """
    config = read_json(folder / "config.json")
    named = read_json(folder / "model.safetensors.index.json").get("weight_map")
    names = {*named} if isinstance(named, dict) else set()
    for path in folder.glob("*.safetensors"):
        names |= {*read_header(path)}
    if of_a_head(config) or any(OF_A_HEAD.match(name) for name in names):
        raise PairError(HEAD_OF_OTHERS.format(folder))


def of_a_head(config: Any) -> bool:
    """Whether a config.json is one of such a draft model."""
    if not isinstance(config, dict):
        return False
    names = f"{config.get('architectures')} {config.get('model_type')}".lower()
    return bool(config.keys() & {"speculators_model_type", "speculators_config", "eagle_config",
                                 "draft_vocab_size", "medusa_num_heads"}
                or re.search("eagle|medusa|hydra|speculator|dflash|draftmodel|mtp", names))
