"""What stands in a GPT's place answers as one does: logits of the last tokens alone, where no others are read."""

import pytest
import torch

from lessons.oracles import Mixture
from lessons.recurrent import small_recurrent
from nanospec.methods.draft_models.early_exit import ExitModel
from nanospec.methods.wrappers.grammar import Constrained, Grammar
from nanospec.methods.wrappers.other_tokenizer import OtherTokenizer, tables_of
from nanospec.methods.wrappers.penalties import Penalised
from nanospec.proof.tables import TableModel, small_gpt, small_learned
from nanospec.serving.ragged import Ragged
from tests.proof.other_tokenizer import ITS, OURS

GPT = small_gpt(11, 3, 1)
MODELS = {
    "table": TableModel(11, 4, zeros=0),
    "mixture": Mixture(TableModel(11, 4, zeros=0), TableModel(11, 7, zeros=0), lambda q, p: (q + 2 * p) / 3),
    "first blocks": ExitModel(small_learned("early_exit", GPT)),
    "ragged": Ragged(GPT, None),
    "grammar": Constrained(GPT, Grammar(torch.tensor([[1, 0, *[1] * 9], [0, -1, *[1] * 9]]))),
    "penalties": Penalised(GPT, 1.3, 0.2, 0.5),
    "another tokenizer": OtherTokenizer(small_gpt(8, 2, 3), tables_of(ITS, OURS, 11)),
    "states": small_recurrent(11, 3, 5, attention=[1]),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_last_rows_alone_are_those_of_the_whole(name):
    model = MODELS[name]
    owner = GPT if name == "ragged" else model              # of the caches
    text = torch.tensor([[3, 0, 5, 1, 2], [1, 4, 0, 0, 3]])
    whole = model(text, owner.new_cache(2, 8), 5)
    for scored in (0, 1, 3):
        last = model(text, owner.new_cache(2, 8), 5, scored=scored)
        assert last.shape == (2, scored, whole.shape[2])
        assert torch.equal(last.isinf(), whole[:, 5 - scored:].isinf())
        assert torch.allclose(last.nan_to_num(), whole[:, 5 - scored:].nan_to_num(), rtol=0, atol=1e-12)
