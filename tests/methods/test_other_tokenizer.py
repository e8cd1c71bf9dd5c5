"""Draft models with another tokenizer: which tokens both have, that the text is exact, and what a mistake does to it.

That the text of the small case is exact, and its drafts are what they should be, are checks
(tests/proof/other_tokenizer.py).
"""

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.errors import PairError
from nanospec.fast.autotune import copy_of
from nanospec.fast.clock import draft_seconds
from nanospec.files.tokenizer import Tokenizer, train
from nanospec.files.tokenizer_json import FolderTokenizer, save_tokenizer, spelling_of
from nanospec.generate import generate
from nanospec.methods.index import method_of
from nanospec.methods.wrappers.string_match import ReadText, StringDrafter, translated
from nanospec.methods.wrappers.other_tokenizer import OtherTokenizer, Tables, tables_of
from nanospec.probs import Sampling
from nanospec.proof.tables import small_gpt
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from nanospec.text import Text
from tests.proof import other_tokenizer as small
from tests.proof.compare import rounds, together

CODE = "def area(width, height):\n    return width * height\n\n\ndef main():\n    print(area(2, 3), 'ä')\n" * 3
TALK = "the height of the main door, and the width of it; in the area of print there is a return\n" * 3
OURS, ITS = Tokenizer(train(CODE, 290)), Tokenizer(train(TALK + CODE, 280))
TARGET, DRAFT_MODEL = small_gpt(OURS.vocab_size, 2, 3), small_gpt(ITS.vocab_size, 1, 4)
PROMPT = OURS.begin + OURS.encode("def area(wid")


def wrapped(draft_model=DRAFT_MODEL, its=ITS, ours=OURS, vocab_size=OURS.vocab_size):
    return OtherTokenizer(draft_model, tables_of(its, ours, vocab_size))


def test_the_tables_are_those_that_were_written_by_hand():
    tables = tables_of(small.ITS, small.OURS, 7)                # an id more than the target's tokenizer has
    assert dict(zip(tables.ids.tolist(), tables.own.tolist())) == small.SHARED
    assert dict(enumerate(tables.read_as.tolist())) == small.READ | {6: small.ITS.end_of_text}


def test_what_the_user_is_told():
    shared = len({*OURS.pieces} & {*ITS.pieces})
    said = f"drafts the {shared} tokens that both have, of the target's {OURS.vocab_size} and its own {ITS.vocab_size}"
    assert said in wrapped().note and not OtherTokenizer(TARGET, tables_of(OURS, OURS, OURS.vocab_size)).note


def test_shared_tokens_have_the_same_bytes():
    tables = tables_of(ITS, OURS, OURS.vocab_size)
    shared = [OURS.pieces[token] for token in tables.ids]
    assert shared == [ITS.pieces[own] for own in tables.own] and {*shared} == {*OURS.pieces} & {*ITS.pieces}
    assert 257 < len(shared) < ITS.vocab_size < OURS.vocab_size
    for token, spelling in enumerate(OURS.spellings[:-1]):
        own = ITS.pieces[tables.read_as[token]]
        assert spelling.endswith(own) and not any(spelling.endswith(longer) for longer in ITS.ranks
                                                  if len(longer) > len(own))


def test_the_text_that_looks_like_end_of_text_is_not_it():
    """A token may spell it; it is text all the same."""
    looks = Tokenizer(OURS.ranks | {b"<|endoftext|>": len(OURS.ranks)})
    tables = tables_of(looks, OURS, OURS.vocab_size)
    assert dict(zip(tables.ids.tolist(), tables.own.tolist()))[OURS.end_of_text] == looks.end_of_text
    assert len(OURS.ranks) not in tables.own.tolist()


@pytest.fixture
def folder(tmp_path):
    """The draft model's tokenizer as others keep it."""
    pytest.importorskip("tokenizers", reason="tokenizers is not installed (the extra 'hf')")
    save_tokenizer(ITS, tmp_path)
    (tmp_path / "config.json").write_text(f'{{"eos_token_id": {ITS.end_of_text}}}')
    return FolderTokenizer.load(tmp_path)


def test_a_file_of_others_has_the_same_bytes(folder):
    """Byte-level letters against bytes, parts of characters included."""
    assert folder.spellings == ITS.spellings
    assert all(a.equal(b) for a, b in zip(tables_of(folder, OURS, 291), tables_of(ITS, OURS, 291)))


def test_added_tokens_are_text_unless_they_are_special(folder):
    before = folder.spellings
    folder.engine.add_tokens(["  \u0120"])
    folder.engine.add_special_tokens(["<|user|>"])
    assert FolderTokenizer(folder.engine, [ITS.end_of_text]).spellings == [*before, "  \u0120".encode(), None]


LLAMA2 = '[{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}]'


@pytest.mark.parametrize("token, decoder, spelling", [
    ("\u0120def", '{"type": "ByteLevel"}', b" def"), ("\u00c3", '{"type": "ByteLevel"}', b"\xc3"),
    ("\u4e2d", '{"type": "ByteLevel"}', None), ("\u2581def", LLAMA2, b" def"), ("<0x0A>", LLAMA2, b"\n"),
    ("<0x0A>", '{"type": "Metaspace", "replacement": "\u2581"}', b"<0x0A>"), ("##ing", '{"type": "WordPiece"}', None)])
def test_the_bytes_of_a_token_in_a_file(token, decoder, spelling):
    assert spelling_of(token, decoder) == spelling


def test_of_a_byte_and_a_letter_the_letter_is_drafted():
    """Llama 2 has "<0x41>" for the byte of A, and then A."""
    its = small.Spellings([None, b"A", b"\n", b"A", b"B"], 0)
    tables = tables_of(its, small.Spellings([b"A", b"B", None], 2), 3)
    assert tables.own.tolist() == [3, 4, 0]


def test_what_does_not_fit_is_refused():
    nothing = small.Spellings([b"x", None], 1)
    with pytest.raises(PairError, match="no token in common"):
        tables_of(nothing, small.OURS, 6)
    with pytest.raises(PairError, match="the target has 5 tokens, and its tokenizer 6"):
        tables_of(small.ITS, small.OURS, 5)
    for tokens, tables in ((270, tables_of(ITS, OURS, 291)), (ITS.end_of_text, tables_of(ITS, OURS, 291)),
                           (5, Tables(*map(torch.tensor, ([0], [0], [0, 5]))))):
        with pytest.raises(PairError, match=f"has {tokens} tokens, and its tokenizer more"):
            OtherTokenizer(small_gpt(tokens, 1, 1), tables)


def test_a_special_token_is_read_and_drafted_as_the_one_of_its_name():
    """So is the end of the target's texts, though the draft model's end with another."""
    ours = SimpleNamespace(spellings=[b"a", None, None], special={"<user>": 1, "<end>": 2}, end_of_text=2)
    its = SimpleNamespace(spellings=[b"a", None, None, None], special={"<user>": 3, "<end>": 1}, end_of_text=2)
    assert [table.tolist() for table in tables_of(its, ours, 3)] == [[0, 1, 2], [0, 3, 1], [0, 3, 1]]


@pytest.mark.parametrize("settings", [{"temperature": 0.8, "top_k": 2}, {"temperature": 0}], ids=str)
@pytest.mark.parametrize("make", [lambda: ModelDrafter(wrapped(), 2), lambda: StringDrafter(DRAFT_MODEL, ITS, OURS, 2)],
                         ids=["shared tokens", "strings"])
def test_two_real_tokenizers_walked(make, settings):
    _, error, _ = rounds(TARGET, partial(speculate, TARGET, make()), PROMPT, 2, **settings)
    assert error < 1e-12


@pytest.mark.parametrize("name", ["tree", "dynamic-tree", "hybrid", "stack", "goodput"])
def test_any_drafter_of_a_gpt_takes_it(name):
    run = method_of(TARGET, wrapped(), name, gamma=3, topology=[-1, 0, 0, 1]).run
    assert tokens_of(run(PROMPT, max_new_tokens=24, temperature=0)) == list(generate(TARGET, PROMPT, 24, 0))


def test_a_draft_model_that_is_the_target_is_always_right():
    """With the same tokenizer all is shared. And a string goes there and back, end of text included."""
    whole = wrapped(TARGET, OURS)
    assert len(whole.ids) == OURS.vocab_size
    done = list(speculate(TARGET, ModelDrafter(whole, 3), PROMPT, 16, 0))
    assert [len(round_.path) for round_ in done[:-1]] == [3] * 3
    knows = iter([[5, 6, 7, OURS.end_of_text]])
    strings = StringDrafter(TARGET, OURS, OURS, 4)
    strings.kept[0] = type("Knows", (), {"likeliest": lambda *_: next(knows)})()
    assert strings.propose(Text([PROMPT], 9, OURS.vocab_size), Sampling(0), Dice([0]), 99).tokens.tolist() == [
        [PROMPT[-1], 5, 6, 7, OURS.end_of_text]]


def with_special_tokens(*names, blank=False, begin=()):
    """A tokenizer of bytes. blank: it puts one before every text, as Llama 2's."""
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed (the extra 'hf')")
    made = tokenizers.Tokenizer(tokenizers.models.BPE(
        {"<unk>": 0} | {f"<0x{b:02X}>": b + 1 for b in range(256)} | {"\u2581": 257, "a": 258, "b": 259},
        [], byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    shown = [tokenizers.normalizers.Prepend("\u2581")] * blank + [tokenizers.normalizers.Replace(" ", "\u2581")]
    made.normalizer = tokenizers.normalizers.Sequence(shown)
    made.decoder = tokenizers.decoders.Sequence([
        tokenizers.decoders.Replace("\u2581", " "), tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse(),
        *[tokenizers.decoders.Strip(" ", 1, 0)] * blank])
    made.add_special_tokens([*names])
    if begin:
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single=[*begin, "$A"], special_tokens=[(name, made.token_to_id(name)) for name in begin])
    return FolderTokenizer(made, [made.token_to_id(names[0])])


def test_what_would_melt_into_the_line_before_it_is_cut_alone():
    """Of a line's end and a, which are one token here, no a would be left."""
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed (the extra 'hf')")
    made = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1, "\n": 2, "\na": 3}, [("\n", "a")]))
    made.add_special_tokens(["<end>"])
    melts = FolderTokenizer(made, [4])
    assert melts.encode("\nab") == [3, 1] and (melts.continued("ab"), melts.continued("ba")) == ([0, 1], [1, 0])


def test_special_tokens_and_first_blanks_of_strings():
    """A special token is the one of that name, or end of text. A blank before a text is no part of what goes on."""
    chat = with_special_tokens("<end>", "<user>", "<other>", "<s>")                         # 260, 261, 262, 263
    llama = with_special_tokens("</s>", "<s>", "<user>", blank=True, begin=["<s>"])         # 260, 261, 262
    assert (llama.begin, llama.encode("ab"), llama.continued("ab")) == ([261], [257, 258, 259], [258, 259])
    assert llama.continued("\n a") == [11, 257, 258] and chat.continued(" a") == chat.encode(" a") == [257, 258]
    assert translated([260, 261, 258, 257, 259, 262, 263], chat, llama) == [260, 262, 258, 257, 259, 260, 261]
    assert translated([262, 258, 257, 259, 260, 261], llama, chat) == [261, 258, 257, 259, 260, 263]
    read = []
    strings = StringDrafter(small_gpt(263, 1, 1), llama, chat, 4)
    knows = type("Knows", (), {"likeliest": lambda _, text, count, end: read.append(text) or [257, 258, 262, end]})()
    strings.kept = {0: knows, 1: knows}
    drafted = strings.propose(Text([[261, 258], [258, 260]], 9, 264), Sampling(0), Dice([0, 1]), 99).tokens.tolist()
    assert read == [[261, 262, 258], [261, 258, 260]]           # the target's texts begin as they are
    assert drafted == [[258, 257, 258, 261, 260], [260, 257, 258, 261, 260]]
    strings.draft_tokenizer, strings.target_tokenizer, read[:] = chat, llama, []
    strings.propose(Text([[261, 257, 258], [257, 258, 262]], 9, 264), Sampling(0), Dice([0, 1]), 99)
    assert read == [[257, 258], [257, 258, 261]]                # neither the target's beginning nor one of its own


@pytest.mark.parametrize("blank, begin", [(False, ()), (False, ["<user>"]), (True, ["<s>"])])
def test_a_model_that_drafts_for_itself_by_strings_is_always_right(blank, begin):
    tokenizer = with_special_tokens("<end>", "<user>", "<s>", blank=blank, begin=begin)
    torch.manual_seed(2)
    model = small_gpt(263, 2, 1, context=128)
    for weight in model.parameters():
        weight.data *= 8.0 if weight.dim() == 2 else 1.0
    model = Writes(model, [258, 259])
    for ids in [261, 258, 10, 260, 261], tokenizer.encode("ab a"), tokenizer.begin + tokenizer.encode("b a"):
        done = list(speculate(model, StringDrafter(model, tokenizer, tokenizer, 4), ids, 40, 0))
        assert tokens_of(done) == list(generate(model, ids, 40, 0)) and len(set(tokens_of(done))) == 2
        assert all(len(one.path) == 4 for one in done[:-1])


class Writes:
    """A model that writes these tokens alone."""

    def __init__(self, model, tokens):
        self.model, self.config, self.new_cache = model, model.config, model.new_cache
        self.device, self.dtype = model.device, model.dtype
        self.never = torch.ones(model.config.vocab_size, dtype=torch.bool)
        self.never[tokens] = False

    def __call__(self, *args, **kwargs):
        return self.model(*args, **kwargs).masked_fill(self.never, float("-inf"))


def test_a_text_that_outgrows_its_cache_is_read_again(monkeypatch):
    """The cache has 256 slots for 100 tokens, and 768 for 300."""
    model, text, read = small_gpt(11, 2, 1, context=600), [n * n % 11 for n in range(300)], []
    kept, forward = ReadText(model), model.forward
    monkeypatch.setattr(model, "forward", lambda tokens, *its, **more: read.append(tokens.numel()) or forward(
        tokens, *its, **more))
    for length, slots in (100, 256), (250, 256), (300, 768):
        kept.likeliest(text[:length], 1, 10)
        assert kept.slots == slots and kept.tokens == text[:length]
    assert read == [100, 150, 300]
    kept = ReadText(model)
    kept.likeliest(text[:100], 1, 10)
    assert kept.likeliest(text[:254], 4, 10) == list(generate(model, text[:254], 4, 0, stop=[10]))


def test_the_draft_model_is_asked_for_as_many_tokens_as_a_draft_may_have():
    asked, strings = [], StringDrafter(DRAFT_MODEL, ITS, OURS, 6)
    strings.kept = {0: SimpleNamespace(likeliest=lambda text, *of: asked.append(of) or [])}
    strings.tree(0, PROMPT)
    assert asked == [(6, ITS.end_of_text)]


def test_strings_for_a_batch_in_which_a_text_begins_anew():
    """As if each were alone; a text that has shrunk is read again from there."""
    prompts = [PROMPT, OURS.encode("def main():\n  "), OURS.encode("ä")]
    drafted = together(TARGET, StringDrafter(DRAFT_MODEL, ITS, OURS, 3), prompts, 12, Dice(range(3)), Sampling(0))
    assert drafted == [list(generate(TARGET, ids, 12, 0)) for ids in prompts]


def test_a_cache_of_strings_holds_what_it_should():
    """However the text changes, what is drafted is what a new one would draft."""
    model = small_gpt(ITS.vocab_size, 1, 4, context=512)
    kept = ReadText(model)
    for text in ("def main", "def main", "def mai", "def area(w", "x" * 300, "def area", "d"):
        ids = ITS.encode(text)
        assert kept.likeliest(ids, 4, ITS.end_of_text) == list(generate(model, ids, 4, 0, stop=[ITS.end_of_text]))
    stop = kept.likeliest(ids, 1, ITS.end_of_text)
    assert kept.likeliest(ids, 4, *stop) == stop


class Counted:
    """A model of one likeliest token, that notes the slots of its caches and the tokens that it reads."""

    device = "cpu"

    def __init__(self):
        self.slots, self.read = [], 0

    def new_cache(self, rows, slots):
        self.slots.append(slots)
        return SimpleNamespace(length=torch.zeros(rows))

    def __call__(self, tokens, cache, kv_length, *, scored):
        self.read += tokens.shape[1]
        return torch.tensor([[[0.0, 1.0]]])


def test_a_text_that_grows_is_read_again_a_few_times_only():
    """Its cache has room for twice the text: 30,000 tokens take seven caches, and are read twice on average."""
    model = Counted()
    kept = ReadText(model)
    for length in range(50, 30_000, 50):
        kept.likeliest([1] * length, 1, 0)
    assert model.slots == [256, 768, 1792, 3840, 7936, 16128, 32512] and model.read < 2.5 * 30_000


def test_a_copy_in_another_type_drafts_the_same_tokens():
    model = wrapped()
    copy = copy_of(model, torch.float32)
    assert copy.dtype == torch.float32 and model.dtype == torch.float64 and copy.ids.equal(model.ids)
    tokens = torch.tensor([PROMPT])
    finite = model(tokens).isfinite()
    assert torch.equal(copy(tokens).isfinite(), finite) and int(finite[0, 0].sum()) == len(model.ids)
    assert draft_seconds(copy, context=4, repeats=1, warm_up=0) > 0


class WholeVocabulary(ModelDrafter):
    """The mistake that the wrapper makes impossible: tokens are drawn from all of the draft model's and then mapped,
    those that the target lacks to one and the same; q_draft is what the draft model thinks of each, of the sum of which
    a part is lost.
    """

    def propose(self, text, sampling, dice, kv_length, lag=0):
        model: OtherTokenizer = self.draft_model
        to_ours = torch.full((model.draft_model.config.vocab_size,), int(model.ids[0])).index_copy(0, model.own,
                                                                                                   model.ids)
        tokens, q_draft = [text.last(1)[:, 0]], []
        for _ in range(self.gamma):
            whole = torch.cat([text.tokens[:, :int(text.length)], *(token[:, None] for token in tokens[1:])], 1)
            q_own = sampling(model.draft_model(model.read_as[whole])[:, -1])
            q_draft.append(torch.zeros(1, text.vocab_size, dtype=q_own.dtype).index_copy(1, model.ids,
                                                                                         q_own[:, model.own]))
            tokens.append(to_ours[dice.pick(q_own)])
        return Draft(torch.stack(tokens, 1), torch.stack([torch.zeros_like(q_draft[0]), *q_draft], 1), self.gamma)


def test_a_q_of_the_whole_vocabulary_is_caught():
    found = rounds(small.TARGET, partial(speculate, small.TARGET, WholeVocabulary(small.draft_model(), 1)), [2, 4, 0],
                   2,
                   temperature=0.7, top_k=3)
    assert found[2] > 0.01
