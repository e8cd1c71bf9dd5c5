"""A pair of ours as others open it, and a pair of others as ours: tokenizers, both commands, assisted generation."""

import builtins
import json
import random
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nanospec.cli import demo
from nanospec.cli.bench import measure as measuring
from nanospec.cli.bench.command import main as bench
from nanospec.errors import PairError, RequestError
from nanospec.files.model_file import save_model
from nanospec.files.checkpoint import WEIGHTS, Pair, load_pair
from nanospec.files.corpus import read_texts
from nanospec.cli.export import main
from nanospec.files.for_engines import export
from nanospec.files.huggingface import load_folder, save_folder
from nanospec.files.tokenizer import END_OF_TEXT, Tokenizer
from nanospec.files.tokenizer_json import FolderTokenizer, save_tokenizer
from nanospec.generate import generate
from nanospec.methods.index import method_of
from nanospec.methods.wrappers.other_tokenizer import OtherTokenizer
from nanospec.model import GPT
from nanospec.proof.tables import small_gpt
from nanospec.speculate import ModelDrafter, speculate, tokens_of

pytest.importorskip("safetensors", reason="safetensors is not installed (the extra 'hf')")
pytest.importorskip("tokenizers", reason="tokenizers is not installed (the extra 'hf')")
pytestmark = pytest.mark.xdist_group("transformers")        # one process imports it
BYTES = Tokenizer({bytes([b]): b for b in range(256)})


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """The pair that ships, exported by the command."""
    folder = tmp_path_factory.mktemp("shipped")
    assert main([str(folder)]) == 0
    return folder


@pytest.fixture
def pair(tmp_path):
    """A pair of small models that write bytes, exported."""
    export(Pair(small_gpt(257, 2, 2, context=128), small_gpt(257, 1, 1, context=128), BYTES), tmp_path)
    return tmp_path


def texts():
    """Code that nobody was trained on, characters of every kind between others, random ones, runs of a few, and what
    only looks like a token.
    """
    chance = random.Random(0)
    every = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    blanks = [character for character in every if character.isspace()]
    yield from (text[:10_000] for text in read_texts()[1][:4])
    many = every[:0x3100:2] + every[0x3100::197]
    yield from ("".join(f"a{character}1" for character in many[i:i + 500]) for i in range(0, len(many), 500))
    yield from ("".join(chance.choice(every if chance.random() < 0.7 else blanks) for _ in range(60))
                for _ in range(100))
    for few in " ", "\n ", '"', "ro", "tes", "=-#", "_a", "٣²½1a_", "e\u0301\u200d ":
        yield from ("".join(chance.choices(few, k=chance.randrange(1, 40))) for _ in range(20))
    yield from ("", f"a {END_OF_TEXT} b", "a\udcffb\ud800")


def test_any_text_gets_the_same_ids(shipped, transformers):
    """From tokenizer.json behind our interface, and from what transformers makes of the folder."""
    ours, theirs = Tokenizer.load(WEIGHTS / "ranks.tiktoken"), FolderTokenizer.load(shipped / "target")
    assert (theirs.begin, theirs.ends, theirs.end_of_text) == (ours.begin, ours.ends, ours.end_of_text)
    assert theirs.vocab_size == ours.vocab_size == 1024
    opened = transformers.AutoTokenizer.from_pretrained(shipped / "draft")
    assert opened.eos_token_id == opened.bos_token_id == ours.end_of_text and opened.eos_token == END_OF_TEXT
    assert opened.pad_token_id == ours.end_of_text
    for number, text in enumerate(texts()):
        ids = ours.encode(text)
        assert theirs.encode(text) == ids, text
        assert theirs.decode(ids) == ours.decode(ids)
        if number % 20 == 0:
            assert opened(text).input_ids == [*ours.begin, *ids] and opened.decode(ids) == text
    assert opened(f"a {END_OF_TEXT} b", add_special_tokens=False).input_ids == ours.encode(f"a {END_OF_TEXT} b")


def test_any_ids_give_the_same_text(shipped):
    ours, theirs = Tokenizer.load(WEIGHTS / "ranks.tiktoken"), FolderTokenizer.load(shipped / "target")
    chance = random.Random(0)
    for _ in range(300):
        ids = chance.choices([*range(1024), 1024, 10 ** 9, 10 ** 30, -1], k=8)
        assert theirs.decode(ids) == ours.decode(ids)


def test_a_tokenizer_of_another_kind(tmp_path):
    """As Llama 2's: a blank before every text, bytes for what it does not know, a token that begins a text."""
    from tokenizers import Tokenizer as Theirs
    from tokenizers import decoders, models, normalizers, processors
    vocab = {"<s>": 0, "</s>": 1} | {f"<0x{b:02X}>": b + 2 for b in range(256)}
    vocab |= {piece: 258 + i for i, piece in enumerate(["▁", "a", "b", "c", "▁a", "bc"])}
    theirs = Theirs(models.BPE(vocab, [("▁", "a"), ("b", "c")], byte_fallback=True, dropout=1.0))     # of a training
    theirs.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    theirs.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                        decoders.Strip(" ", 1, 0)])
    theirs.add_special_tokens(["<s>", "</s>"])
    theirs.post_processor = processors.TemplateProcessing(single=["<s>", "$A"], special_tokens=[("<s>", 0)])
    theirs.enable_truncation(2)
    theirs.enable_padding(length=9)
    theirs.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"eos_token_id": 7}')
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, -1, 5, 0]}')
    tokenizer = FolderTokenizer.load(tmp_path)
    assert (tokenizer.begin, tokenizer.end_of_text, tokenizer.ends) == ([0], 1, {0, 1, 5, 7})
    assert tokenizer.vocab_size == 264
    assert [tokenizer.spellings[i] for i in (0, 67, 258, 262)] == [None, b"A", b" ", b" a"]
    assert tokenizer.encode("a bc") == [262, 258, 263] and len(tokenizer.encode("abc" * 20)) > 2
    for text in "a bc a", "é</s>", "  a":
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == " " + text and not {0, 1} & set(ids)
        if text.isascii():                                  # a text may be shown token by token
            assert "".join(tokenizer.decode([i]) for i in ids) == " " + text


def refused(call, *args, words: str, kind=PairError) -> None:
    with pytest.raises(kind, match=words) as raised:
        call(*args)
    assert str(raised.value).isprintable() and len(str(raised.value)) < 600


@pytest.mark.parametrize("file, text, words", [
    ("tokenizer.json", "", "no tokenizer"), ("tokenizer.json", "{}", "no tokenizer"),
    ("tokenizer.json", "[" * 100_000, "no tokenizer"), ("tokenizer.json", None, "no tokenizer"),
    ("generation_config.json", "[]", "no table in JSON"), ("generation_config.json", "{", "no table in JSON"),
    ("generation_config.json", '{"eos_token_id": "x"}', ""), ("config.json", "{}", "which token ends a text")])
def test_a_tokenizer_that_is_none(pair, file, text, words):
    """None: cut in the middle. Of what ends a text the generation's config need not say anything of use."""
    folder = pair / "target"
    if file == "config.json":
        (folder / "generation_config.json").unlink()
        (folder / "tokenizer_config.json").unlink()
    whole = (folder / file).read_text()
    (folder / file).write_text(whole[:len(whole) // 2] if text is None else text)
    if words:
        refused(FolderTokenizer.load, folder, words=words)
    else:
        assert FolderTokenizer.load(folder).end_of_text == 256
    (folder / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match="tokenizer.json"):
        FolderTokenizer.load(folder)


# The pair

@torch.inference_mode()
def test_the_shipped_pair_writes_the_same_in_transformers(shipped, transformers, monkeypatch, capsys):
    """The page's lines, which assist: at temperature 0, in float32, token for token. Files hold the same numbers."""
    page = (Path(__file__).parents[2] / "docs" / "SCALING.md").read_text()
    lines, = re.findall(r"```python\n(import torch\n.*?)```", page, re.S)
    (shipped / "out").mkdir()
    (shipped / "out" / "pair").symlink_to(shipped)
    monkeypatch.chdir(shipped)
    calls = []
    forward = transformers.LlamaForCausalLM.forward
    monkeypatch.setattr(transformers.LlamaForCausalLM, "forward",
                        lambda self, *args, **rest: calls.append(self) or forward(self, *args, **rest))
    exec(lines, found := {})
    ours, again = load_pair(), load_pair(shipped)
    ids, prompt = found["text"][0].tolist(), "def area(radius):\n"
    known = ours.tokenizer.begin + ours.tokenizer.encode(prompt)
    plain = list(generate(ours.target, known, 32, temperature=0, stop=ours.tokenizer.ends))
    assert ids == known + plain
    assert sum(model is found["target"] for model in calls) < 0.8 * 32                  # it was assisted
    assert ours.tokenizer.decode(plain) in capsys.readouterr().out
    rounds = speculate(again.target, ModelDrafter(again.draft_model, 4), known, 32, temperature=0,
                       stop=again.tokenizer.ends)
    assert tokens_of(rounds) == plain
    x = torch.tensor([ids])
    for name, model, read in (("target", ours.target, again.target),
                              ("draft_model", ours.draft_model, again.draft_model)):
        assert model.config == read.config
        assert all(torch.equal(weight, read.state_dict()[key]) for key, weight in model.state_dict().items())
        assert (model(x) - found[name](x).logits).abs().max() < 1e-4


def test_the_pages_commands_are_whole():
    """Every --speculative-config is JSON, and every command of ours is one."""
    page = (Path(__file__).parents[2] / "docs" / "SCALING.md").read_text()
    configs = re.findall(r"--speculative-config \\\n    '(.*?)'", page, re.S)
    assert len(configs) == 5 and all(json.loads(config)["num_speculative_tokens"] for config in configs)
    for command in re.findall(r"python -m nanospec\.([\w.]+) ", page):
        assert (Path(__file__).parents[2] / "nanospec" / command.replace(".", "/")).with_suffix(".py").exists() or (
            Path(__file__).parents[2] / "nanospec" / command.replace(".", "/") / "__main__.py").exists()


def test_what_the_command_refuses(tmp_path, capsys, monkeypatch, pair):
    for argv, words in ([str(pair)], "target is there already"), (
            [str(tmp_path / "x"), "--weights", "nowhere"], "nowhere"), (
            [str(tmp_path / "x"), "--draft-model", "mlp"], "--draft-model: invalid choice"), (
            [str(tmp_path / "x"), "--draft-model", "eagle3", "--for", "me"], "--for: invalid choice"), (
            [str(tmp_path / "x"), "--weights", str(pair)], "others' files already"):
        assert main(argv) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and words in err and not (tmp_path / "x").exists()
    (tmp_path / "file").write_text("")
    assert main([str(tmp_path / "file")]) == 2 and capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("library", ["tokenizers", "safetensors"])
def test_a_library_that_is_not_there(library, pair, tmp_path, monkeypatch):
    """Said in one line, whoever asks for it; what is ours needs none of them."""
    found = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == library:
            raise ImportError(name)
        return found(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.split(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("nanospec.files.extra.import_module", without)
    words = rf"{library} is not installed: pip install -e '\.\[hf\]'"
    refused(load_pair, pair, words=words, kind=RequestError)
    with monkeypatch.context() as installed:                # site-packages: nothing to install with -e
        installed.setattr("nanospec.files.extra.ROOT", tmp_path)
        refused(load_pair, pair, words=rf"{library} is not installed: pip install 'nanospec\[hf\]'",
                kind=RequestError)
    models = Pair(small_gpt(257, 1, 1), small_gpt(257, 1, 1), BYTES)
    refused(export, models, tmp_path / "y", words=words, kind=RequestError)


def test_a_format_of_heads_is_for_heads(tmp_path, capsys):
    assert main([str(tmp_path / "z"), "--for", "sglang"]) == 2
    assert "--draft-model eagle3" in capsys.readouterr().err and not (tmp_path / "z").exists()
    assert not (tmp_path / "y").exists()


def test_a_pair_that_is_none(pair, capsys):
    """A tokenizer with more tokens than the models."""
    save_tokenizer(Tokenizer(BYTES.ranks | {b"ab": 256}), pair / "draft")
    refused(load_pair, pair, words="rows for 257 tokens, and its tokenizer has 258: there is none for '.*', token 257")
    save_tokenizer(BYTES, pair / "draft")
    save_tokenizer(Tokenizer(BYTES.ranks | {b"ab": 256}), pair / "target")
    assert demo.main(["--weights", str(pair)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "the model has rows for 257 tokens, and its tokenizer has 258" in err
    refused(load_pair, pair, "cpu", torch.float32, "prefix", words="holds no prefix.pt")


@pytest.mark.parametrize("ends, words", [
    ([9_000, 9_001], "files token 9000 ends a text"), ([257], "files token 257 ends a text"), ([9_000, 256], None)])
def test_a_token_that_ends_a_text_and_that_the_model_lacks(pair, ends, words):
    """It never comes. Of several, some may be those of a larger model of the family."""
    target = pair / "target"
    for name in "tokenizer_config.json", "generation_config.json":
        (target / name).unlink()
    (target / "config.json").write_text(json.dumps(json.loads((target / "config.json").read_text())
                                                   | {"eos_token_id": ends}))
    if words:
        refused(load_pair, pair, words=words)
    else:
        assert load_pair(pair).tokenizer.ends == {9_000, 256}


def test_a_token_that_stands_before_a_text_and_that_the_model_lacks(pair):
    path = pair / "target" / "tokenizer.json"
    path.write_text(re.sub(r'("ids": \[\s*)256', r"\g<1>8000", path.read_text()))
    refused(load_pair, pair, words="rows for 257 tokens, and by its files token 8000 stands before a text")


@pytest.mark.parametrize("rows, more", [((300, 270), 0), ((270, 300), 0), ((300, 300), 1), ((258, 257), 1)])
def test_one_tokenizer_and_models_with_other_numbers_of_rows(rows, more, pair):
    """All tokens that both have are drafted as themselves, special ones too, and no others. more: tokens that the
    target's tokenizer has after all others.
    """
    torch.manual_seed(0)
    big = replace(small_gpt(2, 1, 1).config, vocab_size=300, tied=False)
    model = GPT(big).requires_grad_(False)
    for weight in model.parameters():
        weight.mul_(12.0 if weight.dim() == 2 else 1.0)
    model.head.weight[257:] = 0
    for name, count in zip(("target", "draft"), rows):
        smaller = GPT(replace(big, vocab_size=count)).requires_grad_(False)
        state = model.state_dict()
        smaller.load_state_dict(state | {name: state[name][:count] for name in ("embedding.weight", "head.weight")})
        save_folder(smaller, pair / name, 256)
        save_tokenizer(BYTES, pair / name)
    if more:
        said = json.loads((pair / "target" / "tokenizer.json").read_text())
        said["added_tokens"].append(said["added_tokens"][0] | {"id": 257, "content": "<more>"})
        (pair / "target" / "tokenizer.json").write_text(json.dumps(said))
    target, draft_model, tokenizer = found = load_pair(pair)
    assert not found.note and isinstance(draft_model, OtherTokenizer) and tokenizer.vocab_size == 257 + more
    ids = [256, *tokenizer.encode("ab ba"), 256, 7]
    done = list(method_of(target, draft_model, gamma=3).run(ids, max_new_tokens=40, temperature=0))
    assert all(len(one.path) == 3 for one in done[:-1]) and len(set(tokens_of(done))) > 9
    assert tokens_of(done) == list(generate(target, ids, 40, 0))
    assert draft_model(torch.tensor([ids]))[..., 257:].isinf().all()
    assert draft_model.read_as.tolist() == [*range(257)] + [256] * (rows[0] - 257)      # others as end of text


@pytest.mark.parametrize("ranks", [{bytes([255 - b]): b for b in range(256)}, BYTES.ranks | {b"ab": 256}],
                         ids=["the same tokens, other ids", "one token more"])
def test_a_draft_model_with_another_tokenizer(ranks, pair):
    """It drafts what both have, and that is what the user is told; the text is the target's."""
    before = load_pair(pair)
    save_tokenizer(Tokenizer(ranks), pair / "draft")
    save_folder(small_gpt(len(ranks) + 1, 1, 1), pair / "draft", len(ranks))
    target, draft_model, tokenizer = found = load_pair(pair, dtype=torch.float64)
    assert isinstance(draft_model, OtherTokenizer) and "the 257 tokens that both have" in found.note and not before.note
    assert tokenizer.fingerprint() == before.tokenizer.fingerprint()
    ids = tokenizer.encode("ab ba")
    assert tokens_of(method_of(target, draft_model, gamma=3).run(ids, max_new_tokens=12, temperature=0)) == list(
        generate(target, ids, 12, 0))


def test_demo_and_bench_run_a_pair_of_folders(pair, tmp_path, capsys, monkeypatch):
    """With its own tokenizer; the same text as the pair that it was made of."""
    monkeypatch.setattr("nanospec.cli.bench.prompts.read_texts", lambda: ([], ["abc " * 200]))
    monkeypatch.setattr("nanospec.fast.autotune.autotune", lambda *_: "")
    monkeypatch.setattr("nanospec.cli.prepared.tuned", lambda *_: "")
    monkeypatch.setattr(measuring, "step_seconds", lambda model, tokens=1, *_, **__: 1e-3 * tokens)
    monkeypatch.setattr(measuring, "draft_seconds", lambda *_, **__: 1e-3)
    for name in "target", "draft":
        save_model(load_folder(pair / name), tmp_path / f"{name}.pt", BYTES)
    found = tmp_path / "ours"
    found.mkdir()
    BYTES.save(found / "ranks.tiktoken")
    for name in "target.pt", "draft.pt":
        (tmp_path / name).rename(found / name)
    said = []
    for weights in pair, found:
        assert demo.main(["--weights", str(weights), "--prompt", "abcab", "--dtype", "float32", "--device", "cpu",
                          "--max-new-tokens", "16", "--gamma", "2", "--step", "--temperature", "0"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and "round 1" in said[0]
    assert bench(["speed", "--weights", str(pair), "--device", "cpu", "--threads", "1", "--prompts", "1",
                  "--temperatures", "0", "--gammas", "2", "--max-new-tokens", "8",
                  "--json", str(tmp_path / "a.json")]) == 0
    row, = json.loads((tmp_path / "a.json").read_text())
    assert row["emitted"] == 8 and row["drafter"] == "chain"


@pytest.mark.parametrize("parts, begin", [(["<s>", "$A"], [0]), (["<s>", "$A", "</s>"], [0]), (["$A", "</s>"], []),
                                          (["</s>", "<s>", "$A", "<s>"], [1, 0]), (None, [])])
def test_what_stands_before_a_text_is_told_apart_from_what_stands_after_it(parts, begin):
    from tokenizers import Tokenizer as Theirs
    from tokenizers import models, processors
    theirs = Theirs(models.BPE({"<s>": 0, "</s>": 1, "a": 2, "b": 3}, []))
    theirs.add_special_tokens(["<s>", "</s>"])
    if parts:
        theirs.post_processor = processors.TemplateProcessing(single=parts, special_tokens=[("<s>", 0), ("</s>", 1)])
    tokenizer = FolderTokenizer(theirs, [1])
    assert tokenizer.begin == begin and tokenizer.encode("ab") == [2, 3]


def test_the_ends_of_an_answer_are_all_that_anything_names(pair):
    """Each file another one, and the template one that none of them names."""
    folder = pair / "target"
    said = json.loads((folder / "tokenizer.json").read_text())
    for i, name in enumerate(["<one>", "<two>", "<three>", "<four>", "<five>"], 257):
        said["added_tokens"].append(said["added_tokens"][0] | {"id": i, "content": name})
    (folder / "tokenizer.json").write_text(json.dumps(said))
    for name, end in ("config.json", 257), ("generation_config.json", [258]):
        config = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(config | {"eos_token_id": end}))
    template = "{% for m in messages %}<four>{{ m.content }}{{ '\n' }}<five>{% endfor %}"
    for more, ends in (({"eos_token": {"content": "<three>"}, "chat_template": template}, {257, 258, 259, 261}),
                       ({"chat_template": template + " "}, {257, 258, 261}),
                       ({"chat_template": "{{ messages[0].content }}<one>"}, {257, 258}),
                       ({"chat_template": "{{ messages[1].content }}<five>{{ messages[1].content }}<four>"},
                        {257, 258, 260}),
                       ({"chat_template": "{{ raise_exception('only tools') }}"}, {257, 258})):
        (folder / "tokenizer_config.json").write_text(json.dumps(more))
        tokenizer = FolderTokenizer.load(folder)
        assert tokenizer.ends == ends and tokenizer.end_of_text == 258
