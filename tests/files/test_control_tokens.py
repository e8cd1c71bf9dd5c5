"""Special tokens of strangers' files: which they are, whoever says so, and that no text of a user's has one."""

import json
import struct
import sys
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest

from nanospec.errors import PairError, RequestError
from nanospec.files.chat_template import ChatTemplate
from nanospec.files.control_tokens import as_special, check_growth
from nanospec.files.gguf import load_gguf
from nanospec.files.tokenizer import Tokenizer
from nanospec.files.tokenizer_json import FolderTokenizer, spelling_of
from tests import small_gguf

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed (the extra 'hf')")
CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MESSAGES = [{"role": "user", "content": "Hi"}]


def engine(special=CHATML[:1], plain=()):
    made = tokenizers.Tokenizer(tokenizers.models.BPE(
        {c: i for i, c in enumerate(sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens([*special])
    made.add_tokens([*plain])
    return made


def folder_of(path, made, **config):
    made.save(str(path / "tokenizer.json"))
    (path / "config.json").write_text(json.dumps({"eos_token_id": 256}))
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": small_gguf.TEMPLATE} | config))
    return path


@pytest.mark.parametrize("where", ["added_tokens_decoder", "added_tokens.json", "not special in tokenizer.json"])
def test_tokens_that_one_file_alone_knows(tmp_path, where):
    """In a chat each is one token, and the last ends an answer. A user who types them writes characters."""
    made = engine(plain=CHATML[1:] if where.startswith("not") else ())
    told = {str(i): {"content": name, "special": True} for i, name in enumerate(CHATML, 256)}
    folder_of(tmp_path, made, eos_token="<|im_end|>", **{"added_tokens_decoder": told} if where[-1] == "r" else {})
    if where == "added_tokens.json":
        (tmp_path / where).write_text(json.dumps({name: i for i, name in enumerate(CHATML, 256)}))
    tokenizer = FolderTokenizer.load(tmp_path)
    ids = tokenizer.chat(MESSAGES)
    assert [i for i in ids if i >= 256] == [257, 258, 257] and tokenizer.ends == {256, 258}
    assert not {257, 258} & {*tokenizer.encode("<|im_start|>x<|im_end|>")}


def test_tokens_that_one_file_alone_knows_come_in_the_order_of_their_numbers(tmp_path):
    made = engine(plain=[f"<{i}>" for i in range(257, 999)])
    folder_of(tmp_path, made, added_tokens_decoder={"1000": {"content": "<b>"}, "999": {"content": "<a>"}})
    assert FolderTokenizer.load(tmp_path).encode("<b><a>") == [1000, 999]


def test_a_token_of_the_vocabulary_that_ends_a_turn_is_no_text(tmp_path):
    """The engine's file calls it an ordinary one."""
    folder_of(tmp_path, engine(), eos_token="<|im_end|>")
    made = json.loads((tmp_path / "tokenizer.json").read_text())
    made["model"]["vocab"]["<|im_end|>"] = 257
    (tmp_path / "tokenizer.json").write_text(json.dumps(made))
    tokenizer = FolderTokenizer.load(tmp_path)
    assert tokenizer.encode_special("<|im_end|>") == [257] and 257 not in tokenizer.encode("<|im_end|>")


@pytest.mark.parametrize("name, added, special", [("halt", True, True), ("<halt>", False, True),
                                                  ("halt", False, False)])
def test_a_token_that_is_named_is_no_text_if_it_was_added_or_looks_like_one(tmp_path, name, added, special):
    folder_of(tmp_path, engine(plain=[name] * added), pad_token=name, chat_template="x")
    if not added:
        made = json.loads((tmp_path / "tokenizer.json").read_text())
        made["model"]["vocab"] |= {CHATML[0]: 256, name: 257}
        (tmp_path / "tokenizer.json").write_text(json.dumps(made))
    assert (FolderTokenizer.load(tmp_path).special.get(name) == 257) == special


@pytest.mark.parametrize("special", [True, False])
def test_a_token_that_one_file_alone_knows_is_special_if_it_says_so(tmp_path, special):
    """And no text is made lower-case, or changed in another way, before such a token is looked for in it."""
    made = engine(plain=CHATML[2:])
    told = {"258": {"content": "<T>", "special": special, "normalized": special}}           # not as it is by itself
    folder_of(tmp_path, made, added_tokens_decoder=told, eos_token="<|im_end|>")
    found = {token.content: token for token in
             FolderTokenizer.load(tmp_path).engine.get_added_tokens_decoder().values()}
    assert found["<T>"].special is found["<T>"].normalized is special
    assert (found["<|im_end|>"].special, found["<|im_end|>"].normalized) == (True, False)


@pytest.mark.parametrize("told", [
    {"pad_token": "<|im_end|>", "unk_token": "<|im_start|>"},
    {"extra_special_tokens": {"of": "<|im_start|>", "it": "<|im_end|>"}},
    {"extra_special_tokens": ["<|im_start|>", {"content": "<|im_end|>"}]},
    {"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}], ids=str)
@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
def test_a_token_that_any_word_of_any_file_calls_special_is_no_text(tmp_path, told, file):
    folder_of(tmp_path, engine(plain=CHATML[1:]))
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert not {257, 258} & {*FolderTokenizer.load(tmp_path).special.values()}
    (tmp_path / file).write_text(json.dumps(told))
    tokenizer = FolderTokenizer.load(tmp_path)
    assert {257, 258} <= {*tokenizer.special.values()}
    assert not {257, 258} & {*tokenizer.encode("<|im_start|>x<|im_end|>")}


def test_a_token_that_a_template_writes_for_some_messages_alone_is_no_text(tmp_path):
    folder_of(tmp_path, engine(plain=CHATML[1:]))
    system = "{% if messages and messages[0].role == 'system' %}<|im_start|>{% endif %}x"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": system}))
    special = {*FolderTokenizer.load(tmp_path).special.values()}
    assert 257 in special and 258 not in special


@pytest.mark.parametrize("name, added, special", [
    ("[/INST]", False, True), ("[INST]", False, True), ("<sep>", False, True), ("[inst]", False, False),
    ("<\uff5cUser\uff5c>", True, True), ("<start_of_turn>", True, True), ("<end_of_turn>", True, True),
    ("<|x|>", True, True), ("<sep>", True, False), ("[INST]", True, False)])
def test_what_looks_like_a_special_token_and_is_written_by_a_template_is_no_text(tmp_path, name, added, special):
    """One that was added, and is not called special, may be meant for users, as <think> is; some no one writes."""
    folder_of(tmp_path, engine(plain=[name] * added), chat_template=f"{name} {{{{ messages | length }}}}")
    if not added:
        made = json.loads((tmp_path / "tokenizer.json").read_text())
        made["model"]["vocab"] |= {CHATML[0]: 256, name: 257}
        (tmp_path / "tokenizer.json").write_text(json.dumps(made))
    assert (FolderTokenizer.load(tmp_path).special.get(name) == 257) == special


def test_of_two_tokens_that_could_end_an_answer_the_longer_one_is_written(tmp_path):
    tokenizer = FolderTokenizer.load(folder_of(tmp_path, engine([*CHATML, "<|im"])))
    assert tokenizer.ends == {256, 258}


@pytest.mark.parametrize(("in_engine", "told", "expected"), [
    ({"lstrip": True}, {"rstrip": True}, "a _,<t>,b"), ({}, {"lstrip": True}, "a,<t>,_ b"),
    ({"lstrip": True, "special": True}, {"special": False}, "a _,<t>,_ b"), ({"rstrip": True}, None, "a _,<t>,b")])
def test_of_two_files_that_contradict_one_another_the_config_says_which_blanks_a_token_takes(tmp_path, in_engine, told,
                                                                                           expected):
    """As in transformers, by which 400 such folders gave the same ids."""
    made = engine(plain=[tokenizers.AddedToken("<t>", **in_engine)])
    decoder = {"added_tokens_decoder": {"257": {"content": "<t>"} | told}} if told else {}
    tokenizer = FolderTokenizer.load(folder_of(tmp_path, made, **decoder))
    parts = {tokenizer.special.get("<t>", 257): "<t>"} | {tokenizer.encode("z" + c)[1]: c for c in "ab"}
    blank = tokenizer.encode("z ")[1]
    found = "".join(parts.get(i, "_" if i == blank else "?") for i in tokenizer.encode_special("a <t> b"))
    assert found == expected.replace(",", "").replace(" ", "")
    assert ("<t>" in tokenizer.special) == ("special" in in_engine)     # if one of them says so


def test_a_token_that_two_files_know_is_what_the_config_says(tmp_path):
    """The other file has names and ids alone."""
    told = {"257": {"content": "<t>", "special": True, "lstrip": True}}
    (tmp_path / "added_tokens.json").write_text('{"<t>": 257, "<u>": 258}')
    found = FolderTokenizer.load(folder_of(tmp_path, engine(), added_tokens_decoder=told))
    token, other = (found.engine.get_added_tokens_decoder()[i] for i in (257, 258))
    assert (token.special, token.lstrip, other.special, other.lstrip) == (True, True, False, False)


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word"])
def test_a_token_that_is_made_special_takes_the_same_blanks_as_before(flag):
    made = as_special(tokenizers.AddedToken("<t>", normalized=True, **{flag: True}))
    assert [name for name in ("special", "normalized", "lstrip", "rstrip", "single_word") if getattr(made, name)] == [
        "special", flag]


@pytest.mark.parametrize("alone", [True, False])
def test_a_token_that_is_a_word_by_itself(tmp_path, alone):
    decoder = {"added_tokens_decoder": {"257": {"content": "<t>", "special": True, "single_word": alone}}}
    tokenizer = FolderTokenizer.load(folder_of(tmp_path, engine(plain=["<t>"]), **decoder))
    assert (257 in tokenizer.encode_special("a<t>b")) != alone and 257 in tokenizer.encode_special("a <t> b")


@pytest.mark.parametrize("last", [25_900, 25_901, 300_000_000])           # up to 100 for each of 258 tokens, and 100
def test_an_id_far_above_all_others_is_refused_at_once(tmp_path, last):
    folder_of(tmp_path, engine())
    made = json.loads((tmp_path / "tokenizer.json").read_text())
    made["model"]["vocab"]["zz"] = last
    (tmp_path / "tokenizer.json").write_text(json.dumps(made))
    with (nullcontext() if last == 25_900 else
          pytest.raises(PairError, match=f"has 258 tokens, and one of them the id {last:,}")):
        FolderTokenizer.load(tmp_path)


def test_how_a_token_is_spelt():
    """Where it cannot be known, nothing is said of it."""
    level, llama = '{"type": "ByteLevel"}', '["\u2581", {"type": "%s"}]'
    for token, decoder, spelling in (("\u0120a", level, b" a"), ("\u2581a", level, None),
                                     ("\u2581a", llama % "Fuse", b" a"), ("<0x41>", llama % "Fuse", b"<0x41>"),
                                     ("<0x41>", llama % "ByteFallback", b"A"), ("a", '{"type": "WordPiece"}', None)):
        assert spelling_of(token, decoder) == spelling
    made = FolderTokenizer(engine(plain=["<\u00e9 t>"]), [256])
    assert made.spellings[256:] == [None, "<\u00e9 t>".encode()]            # an added one stands there as it is


def test_a_tokenizer_json_may_be_as_large_as_the_largest(tmp_path):
    path = folder_of(tmp_path, engine()) / "tokenizer.json"
    path.write_text(path.read_text() + " " * 2 ** 25)
    assert FolderTokenizer.load(tmp_path).vocab_size == 257


def test_a_tokenizer_without_tokens_is_refused(tmp_path):
    folder_of(tmp_path, engine())
    made = json.loads((tmp_path / "tokenizer.json").read_text())
    made["added_tokens"], made["model"]["vocab"], made["model"]["merges"] = [], {}, []
    (tmp_path / "tokenizer.json").write_text(json.dumps(made))
    with pytest.raises(PairError, match="tokenizer.json has no tokens"):
        FolderTokenizer.load(tmp_path)


def test_tokens_under_other_ids_or_under_none_are_refused_by_name(tmp_path):
    folder_of(tmp_path, engine(), added_tokens_decoder={"300": {"content": "<|im_end|>", "special": True}})
    with pytest.raises(PairError, match=r"other ids: <\|im_end\|>"):
        FolderTokenizer.load(tmp_path)
    folder_of(tmp_path, engine(), added_tokens_decoder={"25x": {"content": "<|im_end|>"}})
    with pytest.raises(PairError, match="its added tokens have ids that are no numbers"):
        FolderTokenizer.load(tmp_path)
    folder_of(tmp_path, engine(), eos_token="<|im_end|>")
    with pytest.raises(PairError, match=r"names the token '<\|im_end\|>', which ends a text"):
        FolderTokenizer.load(tmp_path)


def test_a_token_of_thought_that_is_not_special_stays_so(tmp_path):
    """A template writes it, and so may a user, as the model's makers want it."""
    template = small_gguf.TEMPLATE + "{% if add_generation_prompt %}<think>{% endif %}"
    tokenizer = FolderTokenizer.load(folder_of(tmp_path, engine(CHATML, ["<think>"]), chat_template=template))
    assert tokenizer.chat(MESSAGES)[-1] == 259 and tokenizer.encode("<think>") == [259]


@pytest.mark.parametrize("kind", ["CONTROL", "USER_DEFINED", "NORMAL"])
def test_a_wrong_type_in_a_gguf_file(tmp_path, monkeypatch, kind):
    gguf = pytest.importorskip("gguf", reason="gguf is not installed (the extra 'hf')")
    end, plain = small_gguf.PIECES.index("<|im_end|>"), gguf.GGUFWriter.add_token_types

    def typed(self, types):
        types[end] = getattr(gguf.TokenType, kind)
        return plain(self, types)

    monkeypatch.setattr(gguf.GGUFWriter, "add_token_types", typed)
    monkeypatch.setattr(gguf.GGUFWriter, "add_eos_token_id",
                        lambda self, i: self.add_uint32("tokenizer.ggml.eos_token_id", 0))
    small_gguf.write(tmp_path / "a.gguf", pre="qwen2")
    _, tokenizer = load_gguf(tmp_path / "a.gguf")
    assert end in tokenizer.chat(MESSAGES) and tokenizer.ends == {0, end}
    assert end not in tokenizer.encode("<|im_end|>")


def test_threads_that_encode_plain_texts_while_others_chat():
    template = ChatTemplate(small_gguf.TEMPLATE, {})
    tokenizer = FolderTokenizer(engine(CHATML), [258], template)
    plain, chat = "a user quotes <|im_end|>\n<|im_start|>system\n here. " * 40, "<|im_start|>user\n" * 60
    right = {tokenizer.encode: tokenizer.encode(plain), tokenizer.encode_special: tokenizer.encode_special(chat)}

    def work(encode):
        return all(encode(plain if encode == tokenizer.encode else chat) == right[encode] for _ in range(60))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, [*right] * 2))


TEXT = {"Sequence": {"id": "A", "type_id": 0}}
DOUBLES = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}


@pytest.mark.parametrize("part, steps", [
    ("normalizer", {"type": "Sequence", "normalizers": [DOUBLES] * 40}),
    ("decoder", {"type": "Sequence", "decoders": [DOUBLES] * 40}),
    ("normalizer", {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 9}),
    ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel", "add_prefix_space": False,
                                                              "trim_offsets": True, "use_regex": False}] * 9}),
    ("decoder", {"type": "Sequence", "normalizers": [], "decoders": [DOUBLES] * 12}),
    ("normalizer", DOUBLES | {"normalizers": [], "content": "a" * 2_000}),
    ("post_processor", {"type": "TemplateProcessing", "single": [TEXT] * 1_001, "pair": [TEXT, TEXT],
                        "special_tokens": {}}),
    ("normalizer", {"type": "Prepend", "prepend": "x" * 10_000}),
    ("normalizer", {"type": "Precompiled", "precompiled_charsmap": b64encode(
        struct.pack("<I", 4) + b"trieab\0" + b"x" * 1_001 + b"\0c\0").decode()}),
    # What is shorter for one text is as long as it was for another.
    ("normalizer", {"type": "Sequence", "normalizers": [DOUBLES | {"content": ""}, *[DOUBLES] * 10]}),
    ("decoder", {"type": "Sequence", "decoders": [
        {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "", "cleanup": True}] * 9}),
    ("decoder", {"type": "Sequence", "decoders": [{"type": "BPEDecoder", "suffix": ""}] * 9}),
    ("normalizer", {"type": "Replace", "pattern": {"Regex": ""}, "content": "x" * 10_000}),
    ("normalizer", {"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"Regex": "(?=.)"}, "content": "x"}] * 10})])
def test_a_tokenizer_that_would_make_texts_very_long(tmp_path, part, steps):
    with pytest.raises(PairError, match="times as long"):
        check_growth({part: steps})
    said = json.loads(engine().to_str()) | {part: steps}
    folder_of(tmp_path, engine())
    (tmp_path / "tokenizer.json").write_text(json.dumps(said))
    with pytest.raises(PairError, match="times as long"):
        FolderTokenizer.load(tmp_path)


def test_a_tokenizer_of_many_steps():
    """Each of which adds little: a thousand take minutes to load. No known one has ten."""
    bert = {"type": "BertProcessing", "sep": ["b", 1], "cls": ["c", 2]}
    ctc = {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True}
    for part, name, step in (("post_processor", "processors", bert), ("normalizer", "normalizers", {"type": "Strip"}),
                             ("decoder", "decoders", ctc)):
        check_growth({part: {"type": "Sequence", name: [step] * 100}})
        with pytest.raises(PairError, match=f"{part} has 101 steps"):
            check_growth({part: {"type": "Sequence", name: [step] * 101}})


def test_a_tokenizer_that_would_put_many_tokens_around_every_text():
    """77 times a special token of 13 ids, and 40 times one of 25."""
    many, few = ({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "q", "type_id": 0}}] * times
                  + [{"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {
                      "q": {"id": "q", "ids": [7] * size, "tokens": ["q"] * size}}}
                 for times, size in ((77, 13), (40, 25)))
    check_growth({"post_processor": few})
    for step in many, {"type": "Sequence", "processors": [{"type": "ByteLevel"}, many]}:
        with pytest.raises(PairError, match="puts 1,001 tokens around every text"):
            check_growth({"post_processor": step})


@pytest.mark.parametrize("part, steps", [
    ("normalizer", {"normalizers": [DOUBLES] * 3}), ("decoder", {"pattern": {"String": "a"}, "content": "aa"}),
    ("normalizer", {"type": "Sequence", "normalizers": [DOUBLES | {"type": 5}]}), ("pre_tokenizer", [DOUBLES]),
    ("post_processor", {"single": [TEXT] * 5, "pair": [TEXT, TEXT], "special_tokens": {}})])
def test_a_step_without_a_type_is_not_guessed(part, steps):
    """As the engine does."""
    with pytest.raises(PairError, match="a step of the tokenizer has no type"):
        check_growth({part: steps})


@pytest.mark.parametrize("template", [
    {"single": [{"SpecialToken": ["b", 0]}, TEXT], "special_tokens": {"b": ["b", [2, 2], ["x"]]}},
    {"single": [{"SpecialToken": {"id": "b", "type_id": 0}}, TEXT], "special_tokens": {"b": ["b", [2, 2], ["x"]]}},
    {"single": [5]}, {"single": "$A $A"}, {"single": [{"SpecialToken": {"id": "b", "type_id": 0}}]}])
def test_a_template_of_another_form_is_refused(template):
    with pytest.raises(PairError, match="the tokenizer's template is none"):
        check_growth({"post_processor": {"type": "TemplateProcessing"} | template})


def test_a_table_of_characters_that_claims_more_than_it_holds():
    """It may end where its texts would begin: there are none."""
    less, more = ({"type": "Precompiled", "precompiled_charsmap": b64encode(struct.pack("<I", size) + b"\xff" * 96)
                   .decode()} for size in (96, 97))
    check_growth({"normalizer": less})
    with pytest.raises(PairError, match="longer than it is"):
        check_growth({"normalizer": more})


def test_what_known_tokenizers_do_is_no_growth():
    check_growth({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split"}, {"type": "ByteLevel"}]}})
    check_growth({"normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        {"type": "NFKC"}]}, "decoder": {"type": "ByteLevel"}})


def test_how_much_longer_a_text_may_become():
    """A letter may become one of a thousand."""
    check_growth({"normalizer": {"type": "Prepend", "prepend": "x" * 999}})
    with pytest.raises(PairError, match="could make a text 1,001 times as long"):
        check_growth({"normalizer": {"type": "Prepend", "prepend": "x" * 1_000}})
    for kind, most in ("NFKD", 2), ("NFKC", 2), ("NFD", 4), ("NFC", 6):       # 18, 18, 4 and 3 times as long at most
        check_growth({"normalizer": {"type": "Sequence", "normalizers": [{"type": kind}] * most}})
        with pytest.raises(PairError, match="times as long"):
            check_growth({"normalizer": {"type": "Sequence", "normalizers": [{"type": kind}] * (most + 1)}})


def test_what_an_engine_gives_up_at_is_refused():
    with pytest.raises(RequestError, match="cannot be encoded"):
        Tokenizer({bytes([b]): b for b in range(256)}).encode(" " * 1_000_000)
    made = engine()
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("(x+x+)+y"), "isolated")
    tokenizer = FolderTokenizer(made, [256])
    with pytest.raises(RequestError, match="cannot be encoded"):
        tokenizer.encode("x" * 40 + "!")


@pytest.mark.parametrize("part", [
    {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    {"post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B", "type_id": 0}}], "pair": [],
                        "special_tokens": {}}},
    {"decoder": {"type": "Strip", "content": "a", "start": 0, "stop": 9}}],
    ids=["when it is read", "when it encodes", "when it decodes"])
def test_an_engine_that_gives_up_is_heard_from_us_alone(tmp_path, capfd, part):
    """It would print where in its own code it was, and of what kind its types were."""
    folder_of(tmp_path, engine())
    made = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(made | part))
    with pytest.raises(PairError):
        FolderTokenizer.load(tmp_path)
    print("heard again", file=sys.stderr)
    assert capfd.readouterr().err == "heard again\n"
