"""What its tables print: the gaps, computed again, and that whole numbers have none."""

import torch

from nanospec.fast.int8 import can_quantise
from nanospec.fast.steady import Steady
from printed import table_under
from shorter import shorter


@shorter(("held_out_prompts(pair, 1, 220)", "held_out_prompts(pair, 1, 155)"),
         ("NEW, prompts = 60, held_out_prompts(pair, 12, 90)", "NEW, prompts = 6, held_out_prompts(pair, 2, 24)"))
def test_the_same_to_the_last_bit(lesson, exchanged):
    names, out = lesson("the_same_to_the_last_bit", *exchanged)
    assert len(set(total.item() for total in names["ways"].values())) == 3
    found = names["found"]
    against, apart = found["bfloat16"]
    assert against > 1e-3 and (apart == 0 or 0.2 < apart / against < 5) and found["float32"][1] < 1e-5
    alone, five = (names["in_calls"](names["models"]["bfloat16"], size) for size in (1, 5))
    assert abs(0.5 * (alone - five).abs().sum(-1).mean().item() - apart) < 1e-4
    if can_quantise(torch.device("cpu")):
        assert found["int8, steady"][0] < 0.03 and list(names["models"]) == ["float32", "bfloat16", "int8, steady"]
    if isinstance(names["models"].get("int8, steady"), Steady):
        assert found["int8, steady"][1] < 1e-7
        assert names["same"]["int8, steady"] == names["same"]["float32"] == len(names["prompts"])
    assert set(table_under(out[out.index("texts that are the same") - 40:], "the target in")) == set(found)
