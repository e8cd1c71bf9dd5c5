"""Chat templates: what transformers writes by them, and what a stranger's program cannot do."""

import json
from contextlib import nullcontext
from datetime import datetime
from types import SimpleNamespace

import pytest

from nanospec.errors import PairError, RequestError
from nanospec.files import bounded
from nanospec.files.chat_template import ChatTemplate
from nanospec.files.huggingface import save_folder
from nanospec.files.tokenizer import Tokenizer
from nanospec.files.tokenizer_json import FolderTokenizer, save_tokenizer
from nanospec.proof.tables import small_gpt

pytest.importorskip("jinja2", reason="jinja2 is not installed (the extra 'hf')")
pytestmark = pytest.mark.xdist_group("transformers")        # one process imports it
CHAT = [{"role": "system", "content": "Be <brief> & \"kind\"."}, {"role": "user", "content": " Hello\n\nthere "},
        {"role": "assistant", "content": "Hi! <|endoftext|>"}, {"role": "user", "content": "é?"}]
# What templates of known models use: a namespace, filters, tojson, the end of a loop, a block that marks the answer.
TEMPLATE = """{{- bos_token }}
{%- set found = namespace(system='') %}
{%- for message in messages %}
    {%- if message.role == 'system' %}{% set found.system = message.content | trim %}{% continue %}{% endif %}
    {% generation %}{{ message['role'] | upper }}: {{ message | tojson }}{% endgeneration %}

    {{ eos_token if loop.last else '' }}
{%- endfor %}
{%- if tools is none and documents is none and found.system %}[{{ found.system }}]{% endif %}
{%- if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"""


@pytest.fixture
def folder(tmp_path):
    """A small model of bytes, with that template."""
    pytest.importorskip("tokenizers", reason="tokenizers is not installed (the extra 'hf')")
    save_tokenizer(Tokenizer({bytes([b]): b for b in range(256)}), tmp_path)
    save_folder(small_gpt(257, 1, 1), tmp_path, 256)
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    return tmp_path


def configured(folder, **more) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | more))


def test_the_same_ids_as_transformers(folder, transformers):
    # save_tokenizer asks transformers to take special tokens in a text as text; a chat has them.
    configured(folder, split_special_tokens=False)
    ours, theirs = FolderTokenizer.load(folder), transformers.AutoTokenizer.from_pretrained(folder)
    for answer in (True, False):
        ids = theirs.apply_chat_template(CHAT, add_generation_prompt=answer, return_dict=False)
        assert ours.chat(CHAT, answer) == ids and ids.count(256) == 3
    assert ours.decode(ids).startswith("<|endoftext|>")
    assert 256 not in ours.encode("<|endoftext|>")          # in a prompt it stays text


def test_where_a_template_stands(folder):
    """A file of its own goes before tokenizer_config.json, and there it may be one of several."""
    assert FolderTokenizer.load(folder).chat([]) == [256, *b"<assistant>"]
    (folder / "chat_template.jinja").write_bytes(b"\xef\xbb\xbfno mark")         # which some editors write first
    assert FolderTokenizer.load(folder).chat([]) == [*b"no mark"]
    (folder / "chat_template.jinja").write_bytes(b"caf\xe9")
    with pytest.raises(PairError, match="chat_template.jinja is no text in UTF-8"):
        FolderTokenizer.load(folder)
    with open(folder / "chat_template.jinja", "wb") as file:
        file.truncate(2 ** 24 + 1)
    with pytest.raises(PairError, match="has 16,777,217 bytes, and at most 16,777,216 are read"):
        FolderTokenizer.load(folder)
    (folder / "chat_template.jinja").unlink()
    assert FolderTokenizer.load(folder).template is None
    configured(folder, chat_template=[{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}])
    assert FolderTokenizer.load(folder).chat([]) == [*b"d"]
    configured(folder, chat_template=[{"name": "tools", "template": "t"}])
    assert FolderTokenizer.load(folder).template is None
    configured(folder, chat_template="{{ eos_token }}{{ x_token }}", eos_token={"content": "e"})
    (folder / "special_tokens_map.json").write_text('{"x_token": "x", "eos_token": "y"}')
    assert FolderTokenizer.load(folder).chat([]) == [*b"ex"]
    (folder / "special_tokens_map.json").write_text("[1]")
    with pytest.raises(PairError, match="special_tokens_map.json is no table"):
        FolderTokenizer.load(folder)


def test_a_template_that_wants_a_message_is_asked_with_others():
    """What it then writes is where the token stands that ends a turn."""
    template = "{% if not messages %}{{ raise_exception('no message') }}{% endif %}{{ messages | length }}"
    assert ChatTemplate(template, {}).written == ["2", "1"]


@pytest.mark.parametrize("template", [3, ["a"], [{"name": "default", "template": 7}], {"default": "x"}, True])
def test_a_template_that_is_no_text_is_not_called_missing(folder, template):
    (folder / "chat_template.jinja").unlink()
    configured(folder, chat_template=template)
    with pytest.raises(PairError, match="chat template must be a text"):
        FolderTokenizer.load(folder)


@pytest.mark.parametrize("asked, written", [
    ("", '{"b": [1, "é"], "a": 2}'), ("ensure_ascii=true", r'{"b": [1, "\u00e9"], "a": 2}'),
    ("separators=(',', ':')", '{"b":[1,"é"],"a":2}'), ("sort_keys=true", '{"a": 2, "b": [1, "é"]}'),
    ("indent=1", '{\n "b": [\n  1,\n  "é"\n ],\n "a": 2\n}')])
def test_json_is_written_as_the_template_asks(asked, written):
    assert ChatTemplate("{{ {'b': [1, 'é'], 'a': 2} | tojson(%s) }}" % asked, {})([]) == written


def test_today(monkeypatch):
    assert ChatTemplate("{{ strftime_now('%Y') }}", {})([]).isdigit()
    monkeypatch.setattr(bounded, "datetime", SimpleNamespace(now=lambda: datetime(2031, 7, 5)))
    task = {"source": "{{ strftime_now('%d.%m.%y') }}", "given": {}}
    assert bounded.answer_to(bounded.environment(), task) == {"text": "05.07.31"}


def test_what_it_writes_first_has_its_special_tokens():
    source = "{{ bos_token }}{% for message in messages %}{{ message.role }}{{ eos_token }}{% endfor %}"
    assert ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}).written == [
        "<s>", "<s>user</s>assistant</s>", "<s>user</s>"]
    assert ChatTemplate(source, {"bos_token": "<b>"}).written == ["<b>", "<b>userassistant", "<b>user"]  # another model


@pytest.mark.parametrize("version, safe", [("3.1.5", False), ("2.11.9", False), ("3.1.6", True), ("3.1.10", True),
                                           ("4.0", True)])
def test_a_sandbox_with_known_holes_is_not_used(version, safe, monkeypatch):
    monkeypatch.setattr("nanospec.files.chat_template.extra", lambda name: SimpleNamespace(__version__=version))
    with nullcontext() if safe else pytest.raises(RequestError, match="jinja2 has holes in its sandbox: pip install"):
        assert ChatTemplate(f"jinja2 {version}", {})([]) == f"jinja2 {version}"


@pytest.mark.parametrize("source", ["{% for %}", "{{", "{% generation %}"])
def test_what_is_no_template(source):
    with pytest.raises(PairError, match="chat template cannot be read") as raised:
        ChatTemplate(source, {})
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("source, words", [
    ("{{ raise_exception('roles\nmust alternate\x1b[2J') }}", "roles must alternate\ufffd"),
    ("{{ raise_exception('') }}", "does not take this: TemplateError"),
    ("{{ messages[0].role.nothing.here }}", "undefined|no attribute"), ("{{ 1 / 0 }}", "division"),
    ("{{ ''.__class__.__mro__ }}", "unsafe"), ("{{ messages.append(1) }}", "not safely callable|unsafe"),
    ("{{ raise_exception.__globals__['json'] }}", "unsafe")])
def test_what_a_template_cannot_do(source, words):
    with pytest.raises(RequestError, match=words) as raised:
        ChatTemplate(source, {})([{"role": "user", "content": "x"}])
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("messages", [
    3, "hello", [3], [{"role": "user"}], [{"content": "who?"}], [{"role": "user", "content": 7}], [["role", "user"]]])
def test_what_are_no_messages(messages):
    with pytest.raises(RequestError, match="messages are a list of"):
        ChatTemplate("{{ messages }}", {})(messages)
