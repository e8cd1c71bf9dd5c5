"""GGUF files, made here by the package's own writer: read right, or refused in one line. And the real one."""

from pathlib import Path

import pytest
import torch

from nanospec.errors import PairError, RequestError
from nanospec.files.gguf import half_apart, load_gguf
from nanospec.files.sources import located
from nanospec.generate import generate
from tests.small_gguf import KINDS, PIECES, SPECIAL, side_by_side, write

pytest.importorskip("gguf", reason="gguf is not installed (the extra 'hf')")
pytestmark = pytest.mark.xdist_group("transformers")        # one process imports it


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_model(tmp_path, kind):
    model = write(tmp_path / "a.gguf", kind)
    again, tokenizer = load_gguf(tmp_path / "a.gguf")
    assert again.config == model.config
    for name, weight in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight), name
    assert tokenizer.end_of_text == 2 and tokenizer.ends == {2} and tokenizer.vocab_size == len(PIECES)
    assert list(generate(again, [3, 4], 5, temperature=0)) == list(generate(model, [3, 4], 5, temperature=0))


def test_quantised_weights(tmp_path):
    model = write(tmp_path / "a.gguf", quantised=True)
    again, _ = load_gguf(tmp_path / "a.gguf")
    for name, weight in model.state_dict().items():
        off = (again.state_dict()[name] - weight).abs().max()
        assert 0 < off < weight.abs().max() / 100 or "norm" in name, name


def test_pairs_stand_half_a_head_apart():
    rows = torch.arange(8.0)[:, None]
    assert half_apart(rows, 4)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert torch.equal(half_apart(side_by_side(rows, 4), 4), rows)


def test_tokenizer(tmp_path):
    write(tmp_path / "a.gguf")
    _, tokenizer = load_gguf(tmp_path / "a.gguf")
    text = "the the\n\n1 é <|im_end|>"
    pieces = [PIECES[i] for i in tokenizer.encode(text)]
    # Every digit is cut out first, so that the two line ends before one are one token. <|im_end|> in a text is text.
    assert pieces[:5] == ["t", "he", "Ġthe", "ĊĊ", "1"] and not {*SPECIAL} & {*pieces}
    assert tokenizer.decode(tokenizer.encode(text)) == text
    write(tmp_path / "b.gguf", pre="gpt-2")
    _, other = load_gguf(tmp_path / "b.gguf")
    assert [PIECES[i] for i in other.encode("the\n\n1")] == ["t", "he", "Ċ", "Ċ", "1"]


@pytest.mark.parametrize("pre", ["qwen2", "llama-bpe"])
def test_other_patterns(tmp_path, pre):
    write(tmp_path / "a.gguf", pre=pre, ids=("bos",))
    _, tokenizer = load_gguf(tmp_path / "a.gguf")
    assert tokenizer.decode(tokenizer.encode(" the 1234!")) == " the 1234!"
    assert tokenizer.begin == ([0] if pre == "llama-bpe" else [])           # llama.cpp's default of each


def test_a_turn_ends_a_text_too(tmp_path):
    write(tmp_path / "a.gguf", ids=("eot",))
    _, tokenizer = load_gguf(tmp_path / "a.gguf")
    assert tokenizer.end_of_text == 2 and tokenizer.ends == {0, 2}


def test_its_chat_template(tmp_path):
    """In a chat special tokens are special; a file without a template has no chat."""
    write(tmp_path / "a.gguf")
    _, tokenizer = load_gguf(tmp_path / "a.gguf")
    ids = tokenizer.chat([{"role": "user", "content": "the the"}])
    assert [PIECES[i] for i in ids if i < 3] == ["<|im_start|>", "<|im_end|>", "<|im_start|>"]
    assert tokenizer.decode(ids) == "<|im_start|>user\nthe the<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.chat([{"role": "user", "content": "the the"}], answer=False) == ids[:ids.index(1, 1)]
    assert not {0, 1, 2} & {*tokenizer.encode("<|im_start|>")}
    write(tmp_path / "b.gguf", template="{{ bos_token }}{{ unk_token }}{{ eos_token }}", ids=("bos", "unknown"))
    _, tokenizer = load_gguf(tmp_path / "b.gguf")
    assert tokenizer.chat([]) == [0, 1, 2]
    write(tmp_path / "c.gguf", template=None)
    _, tokenizer = load_gguf(tmp_path / "c.gguf")
    with pytest.raises(RequestError, match="no chat template"):
        tokenizer.chat([])


def refused(path: Path, words: str) -> None:
    """In one line that a terminal can show."""
    with pytest.raises(PairError, match=words) as raised:
        load_gguf(path)
    assert str(raised.value).isprintable() and len(str(raised.value)) < 600


def test_refusals(tmp_path):
    path = tmp_path / "a.gguf"
    with pytest.raises(FileNotFoundError):
        load_gguf(path)
    for data in b"", b"no model", b"GGUF" + bytes(40):
        path.write_bytes(data)
        refused(path, "no GGUF file")
    write(path)
    path.write_bytes(path.read_bytes()[:-2000])
    refused(path, "cut short")
    write(path, leave_out="mlp.down")
    refused(path, "mlp.down_proj.weight is not there")
    write(path, llama__rope__scaling__type="yarn")
    refused(path, "llama.rope.scaling.type yarn")
    write(path, pre="unheard-of")
    refused(path, "tokenizer.ggml.pre unheard-of")
    write(path, template="{% for %}")
    refused(path, "chat template cannot be read")


CHATS = [[{"role": "user", "content": "Name 3 trees.\n\n1. Oak"}], [{"role": "user", "content": "def f(x): ..."},
         {"role": "assistant", "content": "It returns  x."}, {"role": "user", "content": "Ça va?  \n\tYes"}],
         [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a tree?"}]]


@pytest.mark.smollm2
def test_smollm2(transformers):
    """transformers' tokenizer forgets that SmolLM's cuts out every digit, which matters after two line ends."""
    pytest.importorskip("accelerate", reason="transformers reads GGUF files with accelerate")
    try:
        path = located("smollm2")
    except RequestError as error:
        pytest.skip(str(error))
    target, tokenizer = load_gguf(path)
    file = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    theirs = transformers.AutoModelForCausalLM.from_pretrained(**file, dtype=torch.float32).eval()
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(**file)
    for chat in CHATS:
        ids = their_tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        with torch.no_grad():
            logits = theirs(torch.tensor([ids])).logits
        assert (target(torch.tensor([ids])) - logits).abs().max() < 1e-4
        assert chat is CHATS[0] or tokenizer.chat(chat) == ids
        assert tokenizer.decode(tokenizer.chat(chat)) == their_tokenizer.decode(ids)
    # What the model itself writes before a digit: two line ends as one token, of its original tokenizer's cutting.
    assert tokenizer.encode("\n\n1") == [1116, 33] and their_tokenizer.encode("\n\n1") == [198, 198, 33]
