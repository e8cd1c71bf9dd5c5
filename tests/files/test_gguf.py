"""GGUF files, made here by the package's own writer: read right, or refused in one line. And the real one."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nanospec.errors import PairError, RequestError
from nanospec.files import quick_gguf
from nanospec.files.gguf import ENDING, half_apart, llama3_of, load_gguf
from nanospec.files.sources import located
from nanospec.generate import generate
from nanospec.model import GPT, rope_table
from tests.small_gguf import KINDS, MERGES, PIECES, SPECIAL, side_by_side, write

pytest.importorskip("gguf", reason="gguf is not installed (the extra 'hf')")
pytestmark = pytest.mark.xdist_group("transformers")        # one process imports it


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_model(tmp_path, kind):
    model = write(tmp_path / "a.gguf", kind)
    again, tokenizer = load_gguf(tmp_path / "a.gguf")
    assert again.config == model.config
    for name, weight in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight), name
    assert tokenizer.end_of_text == 2 and tokenizer.ends == {0, 2} and tokenizer.vocab_size == len(PIECES)
    assert list(generate(again, [3, 4], 5, temperature=0)) == list(generate(model, [3, 4], 5, temperature=0))


def test_a_file_with_the_bytes_in_the_other_order(tmp_path):
    """The package's reader takes the weights of a big-endian machine for numbers of this one."""
    write(tmp_path / "a.gguf", order="BIG")
    refused(tmp_path / "a.gguf", "big-endian")


def test_tensors_that_share_their_bytes(tmp_path):
    """All begin where the largest does, and the file ends with it: together they are more than it has."""
    from gguf import GGUFReader
    path = tmp_path / "model.gguf"
    write(path)
    tensors = GGUFReader(path, "r+").tensors
    for tensor in tensors:
        tensor.field.parts[-1][0] = 0                       # written into the file
    largest = max(int(tensor.n_bytes) for tensor in tensors)
    path.write_bytes(path.read_bytes()[:int(min(tensor.data_offset for tensor in tensors)) + largest])
    with pytest.raises(PairError, match="it says that it holds"):
        load_gguf(path)


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
    write(tmp_path / "b.gguf", pre=pre, ids=("bos",), tokenizer__ggml__add_bos_token=int(pre == "qwen2"))
    assert load_gguf(tmp_path / "b.gguf")[1].begin == ([0] if pre == "qwen2" else [])    # what a file says goes first
    composed, apart = map(tokenizer.encode, ("\u00e9", "e\u0301"))
    assert (composed == apart) == (pre == "qwen2")                          # Qwen2 composes accents first


@pytest.mark.parametrize("pre", ["qwen2", "llama-bpe"])
def test_a_word_that_no_merges_make_is_one_token_in_llama_3_alone(tmp_path, monkeypatch, pre):
    monkeypatch.setattr("tests.small_gguf.PIECES", [*PIECES[:-1], "abc"])
    monkeypatch.setattr("tests.small_gguf.MERGES", MERGES[:-1])
    write(tmp_path / "a.gguf", pre=pre, ids=("bos",))
    assert (load_gguf(tmp_path / "a.gguf")[1].encode("abc")[-1:] == [len(PIECES) - 1]) == (pre == "llama-bpe")


@pytest.mark.parametrize("pre, counts", [("smollm", [2, 4]), ("gpt-2", [1, 3]), ("qwen2", [2, 4]),
                                         ("llama-bpe", [1, 4])])
def test_each_digit_is_a_token_or_none(tmp_path, monkeypatch, pre, counts):
    """Though merges make one of two. Llama 3 cuts after three."""
    monkeypatch.setattr("tests.small_gguf.PIECES", [*PIECES[:-1], "12"])
    monkeypatch.setattr("tests.small_gguf.MERGES", [*MERGES[:-1], "1 2"])
    write(tmp_path / "a.gguf", pre=pre, ids=("bos",))
    tokenizer = load_gguf(tmp_path / "a.gguf")[1]
    assert [len(tokenizer.encode(text)) for text in ("12", "3312")] == counts


@pytest.mark.parametrize("pre, words", [
    ("gpt-2", ["I", "'", "LLgo", ",", "ĊĊĠ", "Ġto", "/", "x"]),
    ("llama-bpe", ["I", "'LL", "go", ",ĊĊ", "Ġ", "Ġto", "/x"])])
def test_how_a_text_is_cut_into_words(tmp_path, pre, words):
    write(tmp_path / "a.gguf", pre=pre, ids=("bos",))
    cut = load_gguf(tmp_path / "a.gguf")[1].engine.pre_tokenizer.pre_tokenize_str("I'LLgo,\n\n  to/x")
    assert [word for word, _ in cut] == words


def test_a_token_that_was_added_and_is_not_special_is_one_in_any_text(tmp_path, monkeypatch):
    """As <think>."""
    import gguf
    types = gguf.GGUFWriter.add_token_types
    monkeypatch.setattr("tests.small_gguf.PIECES", [*PIECES[:-1], "<think>"])
    monkeypatch.setattr("tests.small_gguf.MERGES", MERGES[:-1])
    monkeypatch.setattr(gguf.GGUFWriter, "add_token_types",
                        lambda self, kinds: types(self, [*kinds[:-1], gguf.TokenType.USER_DEFINED]))
    write(tmp_path / "a.gguf")
    assert load_gguf(tmp_path / "a.gguf")[1].encode("a<think>b")[1:-1] == [len(PIECES) - 1]


def test_a_network_of_another_name_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(KINDS, "gemma", KINDS["llama"])
    write(tmp_path / "a.gguf", "gemma")
    refused(tmp_path / "a.gguf", "does not have: general.architecture gemma")


def test_a_tokenizer_of_another_kind_is_refused(tmp_path, monkeypatch):
    import gguf
    monkeypatch.setattr(gguf.GGUFWriter, "add_tokenizer_model",
                        lambda self, _: self.add_string("tokenizer.ggml.model", "t5"))
    write(tmp_path / "a.gguf")
    refused(tmp_path / "a.gguf", "does not have: tokenizer.ggml.model t5")


def test_heads_of_a_size_of_their_own(tmp_path, monkeypatch):
    """16 channels each, of four heads beside 32 channels."""
    monkeypatch.setitem(KINDS, "qwen3", replace(KINDS["qwen3"], head_dim=16))
    model = write(tmp_path / "a.gguf", "qwen3", qwen3__attention__key_length=16, qwen3__attention__value_length=16)
    again, _ = load_gguf(tmp_path / "a.gguf")
    assert again.config == model.config and again.config.head_size == 16


def test_a_token_that_begins_a_text_is_special_whatever_its_type(tmp_path, monkeypatch):
    import gguf
    types = gguf.GGUFWriter.add_token_types
    monkeypatch.setattr("tests.small_gguf.PIECES", ["<s>", *PIECES[1:]])
    monkeypatch.setattr(gguf.GGUFWriter, "add_token_types",
                        lambda self, kinds: types(self, [gguf.TokenType.NORMAL, *kinds[1:]]))
    for ids, special in ((), False), (("bos",), True):
        write(tmp_path / "a.gguf", ids=ids, template=None)
        assert ("<s>" in load_gguf(tmp_path / "a.gguf")[1].special) == special


def test_a_file_that_does_not_group_heads_need_not_say_so(tmp_path, monkeypatch):
    import gguf
    monkeypatch.setitem(KINDS, "llama", replace(KINDS["llama"], kv_heads=4))
    monkeypatch.setattr(gguf.GGUFWriter, "add_head_count_kv", lambda *_: None)
    model = write(tmp_path / "a.gguf")
    assert load_gguf(tmp_path / "a.gguf")[0].config == model.config


def test_a_rope_base_that_a_file_leaves_out(tmp_path):
    write(tmp_path / "a.gguf", leave_out="rope base")
    assert load_gguf(tmp_path / "a.gguf")[0].config.rope_theta == 10_000


def test_a_turn_ends_a_text_too(tmp_path, monkeypatch):
    """By its number, or because the template writes it after an answer. A text like "</s>" need not be a special token.
    """
    monkeypatch.setattr("tests.small_gguf.PIECES", ["<one>", "<two>", *PIECES[2:-1], "</s>"])
    monkeypatch.setattr("tests.small_gguf.MERGES", MERGES[:-1])
    after_answers = "{% for message in messages %}{{ message.content }} <two>{% endfor %}"
    for ids, template, ends in (((), None, {2}), (("bos", "eot"), None, {1, 2}), (("bos", "eom"), None, {1, 2}),
                                (("eom", "eot"), None, {0, 1, 2}), ((), after_answers, {1, 2})):
        write(tmp_path / "a.gguf", ids=ids, template=template)
        _, tokenizer = load_gguf(tmp_path / "a.gguf")
        assert tokenizer.end_of_text == 2 and tokenizer.ends == ends


@pytest.mark.parametrize("text", sorted(ENDING - {"<|im_end|>"}))
def test_special_tokens_that_end_a_turn_are_known_by_their_texts(tmp_path, monkeypatch, text):
    monkeypatch.setattr("tests.small_gguf.PIECES", ["<one>", text, *PIECES[2:]])
    write(tmp_path / "a.gguf", template=None)
    _, tokenizer = load_gguf(tmp_path / "a.gguf")
    assert tokenizer.end_of_text == 2 and tokenizer.ends == {1, 2}


def test_of_tokens_with_a_wrong_type_one_that_ends_a_turn_is_special_if_no_one_writes_it_by_accident(tmp_path,
                                                                                                   monkeypatch):
    ends = ["<|eot_id|>", "<|think|>", "[EOT]", "</s>"]
    monkeypatch.setattr("tests.small_gguf.PIECES", [*PIECES[:-5], *ends, "he"])
    monkeypatch.setattr("tests.small_gguf.MERGES", ["h e"])
    write(tmp_path / "a.gguf", template=None)
    _, tokenizer = load_gguf(tmp_path / "a.gguf")
    assert [text in tokenizer.special for text in ends] == [True, False, False, False]
    assert tokenizer.ends == {0, 2, len(PIECES) - 5}


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
    write(tmp_path / "b.gguf", template="{{ pad_token }}{{ eos_token }}", ids=("bos", "padding"))
    assert load_gguf(tmp_path / "b.gguf")[1].chat([]) == [1, 2]
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
    write(path, split__count=2)
    refused(path, "a part of a model that is split into 2 files")
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    refused(path, "a pointer of Git LFS")
    write(path, pre="unheard-of")
    refused(path, "tokenizer.ggml.pre unheard-of")
    write(path, pre="default")
    refused(path, "does not say by which pattern a text is cut into words")
    write(path, template="{% for %}")
    refused(path, "chat template cannot be read")


@pytest.mark.parametrize("keys, words", [
    ({"scaling__type": "yarn"}, "scaling.type yarn"), ({"scaling__type": "longrope"}, "scaling.type longrope"),
    ({"scale_linear": 4.0}, "scale_linear 4.0"), ({"scaling__factor": 4.0}, "scaling.factor 4.0"),
    ({"scaling__type": "linear", "scaling__factor": 0.5}, "scaling.factor 0.5"),
    ({"dimension_count": 4}, "dimension_count 4"), ({"scaling__attn_factor": 1.5}, "scaling.attn_factor 1.5"),
    ({"dimension_sections": 3}, "dimension_sections 3"), ({"freq_base_swa": 5e4}, "freq_base_swa 50000")])
def test_what_else_is_asked_of_positions_is_refused(tmp_path, keys, words):
    write(tmp_path / "a.gguf", **{f"llama__rope__{key}": value for key, value in keys.items()})
    refused(tmp_path / "a.gguf", f"does not have: llama.rope.{words}")


@pytest.mark.parametrize("keys", [
    {"attention__causal": 0}, {"attention__sliding_window": 64}, {"attention__scale": 0.5}, {"logit_scale": 0.25},
    {"residual_scale": 0.5}, {"embedding_scale": 12.0}, {"attn_logit_softcapping": 50.0}, {"expert_count": 8},
    {"final_logit_softcapping": 30.0}, {"attention__value_length": 4}, {"attention__max_alibi_bias": 8.0},
    {"attention__clamp_kqv": 8.0}, {"use_parallel_residual": 1}, {"nextn_predict_layers": 1}, {"pooling_type": 1},
    {"hidden_activation": "gelu"}], ids=lambda keys: next(iter(keys)))
def test_another_network_under_the_same_name_is_refused(tmp_path, keys):
    """Its weights have the places of a Llama's, so it would load, and compute something else."""
    write(tmp_path / "a.gguf", **{f"llama__{key}": value for key, value in keys.items()})
    name, value = next(iter(keys.items()))
    refused(tmp_path / "a.gguf", f"does not have: llama.{name.replace('__', '.')} {value}")


@pytest.mark.parametrize("keys", [
    {"attention__causal": 1}, {"attention__sliding_window": 0}, {"logit_scale": 1.0}, {"attn_logit_softcapping": 0.0},
    {"expert_count": 0}, {"vocab_size": 32000}, {"attention__value_length": 8}, {"attention__key_length": 8},
    {"tensor_data_layout": "Meta AI original pth"}], ids=lambda keys: next(iter(keys)))
def test_what_changes_nothing_is_allowed(tmp_path, keys):
    model = write(tmp_path / "a.gguf", **{f"llama__{key}": value for key, value in keys.items()})
    assert load_gguf(tmp_path / "a.gguf")[0].config == model.config


def test_sizes_of_each_layer(tmp_path, monkeypatch):
    """As many numbers as layers say the same as one, unless they differ."""
    import gguf
    for key, add in ("attention.head_count", "add_head_count"), ("attention.head_count_kv", "add_head_count_kv"), (
            "feed_forward_length", "add_feed_forward_length"):
        for more in 0, 1:
            def write_each(self, number, key=key, more=more):
                self.add_array(f"{self.arch}.{key}", [number, number + more])
            with monkeypatch.context() as patch:
                patch.setattr(gguf.GGUFWriter, add, write_each)
                model = write(tmp_path / "a.gguf")
            if more:
                refused(tmp_path / "a.gguf", rf"layers of different sizes, llama.{key} \[")
            else:
                assert load_gguf(tmp_path / "a.gguf")[0].config == model.config


def test_a_token_that_stands_there_twice(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.small_gguf.PIECES", [*PIECES[:-1], PIECES[5]])
    write(tmp_path / "a.gguf")
    refused(tmp_path / "a.gguf", "cannot be used: of its 263 tokens 262 differ")


def test_special_tokens_that_are_none(tmp_path):
    write(tmp_path / "a.gguf", tokenizer__ggml__add_bos_token=1)
    refused(tmp_path / "a.gguf", "puts a token before every text, and has no tokenizer.ggml.bos_token_id")
    for name, i in ("bos", 99_999), ("eot", 263), ("unknown", 99_999):
        write(tmp_path / "a.gguf", **{f"tokenizer__ggml__{name}_token_id": i})
        refused(tmp_path / "a.gguf", f"has 263 tokens, and tokenizer.ggml.{name}_token_id is {i}")


@pytest.mark.parametrize("keys", [
    {"scaling__type": "linear"}, {"scaling__type": "linear", "scaling__factor": 1.0}, {"scaling__factor": 0.0},
    {"scaling__type": "none", "scaling__factor": 8.0}, {"scale_linear": 1.0}, {"dimension_count": 8},
    {"scaling__original_context_length": 64}])
def test_what_changes_no_position_is_allowed(tmp_path, keys):
    """As llama.cpp reads it: a factor of 0 is none, and with the type "none" it is not looked at."""
    model = write(tmp_path / "a.gguf", **{f"llama__rope__{key}": value for key, value in keys.items()})
    assert load_gguf(tmp_path / "a.gguf")[0].config == model.config


def divisors(theta, size, factor, low, high, context):
    """As llama.cpp's converter writes Llama 3's scaling, in the words of its paper: wavelengths."""
    out = []
    for i in range(0, size, 2):
        wave = 2 * math.pi * theta ** (i / size)
        smooth = (context / wave - low) / (high - low)
        between = 1 / ((1 - smooth) / factor + smooth) if 0 < smooth < 1 else 0.0
        out.append(1.0 if wave < context / high else factor if wave > context / low else between)
    return np.array(out, dtype=np.float32)


@pytest.mark.parametrize("theta, size, llama3", [
    (500_000.0, 128, (8.0, 1.0, 4.0, 8192)), (500_000.0, 64, (32.0, 1.0, 4.0, 8192)),
    (10_000.0, 8, (32.0, 1.0, 4.0, 64)), (10_000.0, 16, (4.0, 1.0, 8.0, 512)), (10_000.0, 8, (8.0, 1.0, 4.0, 4096)),
    (10_000.0, 4, (2.0, 1.0, 4.0, 1))])
def test_the_scaling_of_llama_3_is_read_off_its_divisors(theta, size, llama3):
    """Where a pair or none is between, more than one scaling has these divisors; any of them turns as they say."""
    wanted = divisors(theta, size, *llama3)
    found = llama3_of(wanted.tolist(), theta, size)
    ours, theirs = (rope_table(5_000, size, theta, torch.float64, "cpu", scaling) for scaling in (found, llama3))
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-4) and not torch.allclose(
        ours, rope_table(5_000, size, theta, torch.float64, "cpu"), atol=0.1)
    assert llama3_of([1.0] * (size // 2), theta, size) == ()
    assert llama3_of([*wanted.tolist()[::-1]], theta, size) is None or size == 4 and len({*wanted.tolist()}) == 1
    assert llama3_of(wanted.tolist()[1:], theta, size) is None
    steeper = divisors(10_000.0, 128, 4.0, 1.0, 8.0, 512)               # several pairs are between
    assert llama3_of(steeper.tolist(), 10_000.0, 128) is None


def test_a_file_of_llama_3(tmp_path):
    llama3 = (32.0, 1.0, 4.0, 64)
    model = write(tmp_path / "a.gguf", rope_freqs__weight=divisors(10_000.0, 8, *llama3))
    again, _ = load_gguf(tmp_path / "a.gguf")
    assert again.config == replace(model.config, rope_llama3=again.config.rope_llama3)
    scaled = GPT(replace(model.config, rope_llama3=llama3)).requires_grad_(False)
    scaled.load_state_dict(model.state_dict())
    ids = torch.arange(200)[None]
    assert (again(ids) - scaled(ids)).abs().max() < 1e-3 < (again(ids) - model(ids)).abs().max()
    write(tmp_path / "b.gguf", rope_freqs__weight=np.array([1, 3, 2, 9], dtype=np.float32))
    refused(tmp_path / "b.gguf", "rope_freqs.weight that are not Llama 3's")


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


def test_each_token_has_a_type(tmp_path, monkeypatch):
    """Where types are lacking, the last tokens would be plain text."""
    import gguf
    types = gguf.GGUFWriter.add_token_types
    monkeypatch.setattr(gguf.GGUFWriter, "add_token_types", lambda self, kinds: types(self, kinds[:-3]))
    write(tmp_path / "a.gguf")
    refused(tmp_path / "a.gguf", f"has {len(PIECES)} tokens, and types of {len(PIECES) - 3}")


def test_it_is_read_as_the_package_reads_it(tmp_path, monkeypatch):
    import gguf
    write(tmp_path / "a.gguf", some__words="ab")
    ours, theirs = quick_gguf.gguf_reader(tmp_path / "a.gguf"), gguf.GGUFReader(tmp_path / "a.gguf")
    assert [*ours.fields] == [*theirs.fields] and len(ours.tensors) == len(theirs.tensors) > 3
    assert all(ours.fields[name].contents() == field.contents() for name, field in theirs.fields.items())
    monkeypatch.setattr(quick_gguf, "MOST_PARTS", ours.read)
    assert quick_gguf.gguf_reader(tmp_path / "a.gguf").read == ours.read > len(PIECES)
    monkeypatch.setattr(quick_gguf, "MOST_PARTS", ours.read - 1)
    with pytest.raises(ValueError, match="more than"):
        quick_gguf.gguf_reader(tmp_path / "a.gguf")


def test_each_part_of_a_key_counts(tmp_path):
    """The lengths and characters of two texts, and that the second is one."""
    for more in {}, {"some__words": "ab"}:
        write(tmp_path / f"{len(more)}.gguf", **more)
    without, with_one = (quick_gguf.gguf_reader(tmp_path / f"{number}.gguf").read for number in (0, 1))
    assert with_one == without + 5


def test_each_number_of_a_list_counts(tmp_path, monkeypatch):
    """It becomes an object of Python's, as a token does."""
    import gguf
    write(tmp_path / "a.gguf")
    read, types = quick_gguf.gguf_reader(tmp_path / "a.gguf").read, gguf.GGUFWriter.add_token_types
    monkeypatch.setattr(gguf.GGUFWriter, "add_token_types", lambda self, kinds: types(self, kinds + [1] * 50))
    write(tmp_path / "a.gguf")
    assert quick_gguf.gguf_reader(tmp_path / "a.gguf").read == read + 50
