"""A conversation: what it writes is what `speculate` writes after the same text, and the target reads nothing twice.

Most targets here are tables: every context has a distribution of its own, so a token that was not read, or read in the
wrong place, is seen at once. (Greedily, a small random GPT says the same token again and again.)
"""

from functools import cache

import pytest
import torch

from nanospec.errors import LogitsError, RequestError
from nanospec.generate import generate
from nanospec.methods.copies.suffix import SuffixDrafter
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.index import DRAFTERS, RULES, Options, method_of
from nanospec.model import GPT, Config
from nanospec.proof.tables import TableModel, small_gpt, small_learned
from nanospec.serving.conversation import Conversation
from nanospec.speculate import ModelDrafter, speculate, tokens_of

TABLE, DRAFT_MODEL, LEARNABLE = TableModel(4, 8), TableModel(4, 58), small_gpt(4, 3, 9)
SETTINGS = {"gamma": 3, "topology": [-1, 0, 0, 1], "costs": (0.3, {2: 1.1, 3: 1.2, 4: 1.3})}
TURNS = [[1, 2, 3, 1, 2], [3], [0, 1, 2, 3, 0, 1, 2], [2, 2]]
LEARNERS = [f"chain of {name}" for name in LEARNED] + ["tree of prefix", "tree of early_exit", "hybrid of prefix"]


class Counting:
    """A target that counts the tokens it is asked to read."""

    def __init__(self, target):
        self.target, self.tokens = target, 0

    def __getattr__(self, name):
        return getattr(self.target, name)

    def __call__(self, tokens, *of, **more):
        self.tokens += tokens.numel()
        return self.target(tokens, *of, **more)


def target_of(name: str):
    return LEARNABLE if " of " in name else TABLE            # a table has no hidden states from which one can learn


def drafter_of(name: str):
    """"chain", or "chain of mlp" for one with a learned draft model; "itself", whose draft tokens are all accepted."""
    if name == "itself":
        return ModelDrafter(TABLE, 3)
    kind, _, model = name.partition(" of ")
    return DRAFTERS[kind].make(small_learned(model, target_of(name)) if model else DRAFT_MODEL, Options(**SETTINGS))


def talk_of(name: str, **more) -> Conversation:
    drafter = drafter_of(name)
    return Conversation(target_of(name), drafter, **more)


def plain(name: str, ids: list[int], new: int, stop: tuple[int, ...] = ()) -> list[int]:
    return [*written_by(target_of(name), tuple(ids), new, stop)]


@cache
def written_by(target, ids: tuple[int, ...], new: int, stop: tuple[int, ...]) -> list[int]:
    """The same for every drafter, greedily."""
    return list(generate(target, ids, new, temperature=0, stop=stop))


def anew(name: str, ids: list[int], **request) -> list[int]:
    """What a new drafter writes after this text, read as one prompt."""
    drafter = drafter_of(name)
    return tokens_of(speculate(target_of(name), drafter, ids, **request))


@pytest.mark.parametrize("name", [*DRAFTERS, *LEARNERS])
def test_greedy_it_writes_what_the_target_writes(name):
    talk, ids = talk_of(name), []
    for turn in TURNS:
        ids += turn
        written = tokens_of(talk.reply(turn, 8, temperature=0))
        assert written == plain(name, ids, 8)
        ids += written
        assert talk.ids == ids


@pytest.mark.parametrize("name", [*(name for name, entry in DRAFTERS.items() if entry.kind.fixed), *LEARNERS[:-1]])
def test_drawn_it_writes_what_speculate_writes(name):
    """Where all drafts have one shape. Others learn from the rounds before, and so draft and draw otherwise."""
    talk, ids = talk_of(name), []
    for number, turn in enumerate(TURNS):
        ids += turn
        seed = [None, 7, 0][min(number, 2)]         # none is the conversation's 0 once, and then 0 is a seed, too
        written = tokens_of(talk.reply(turn, 8, temperature=0.8, top_k=3, seed=seed))
        assert written == anew(name, ids, max_new_tokens=8, temperature=0.8, top_k=3, seed=seed or 0)
        ids += written


@pytest.mark.parametrize("name", ["chain", "itself", "suffix", "tree", "chain of prefix", "chain of mlp"])
def test_a_turn_reads_what_is_new(name):
    """The tokens that the target is given are those of its rounds, and each turn's own; no earlier one again."""
    drafter = drafter_of(name)
    target = Counting(target_of(name))
    talk, known = Conversation(target, drafter), 0
    for turn in TURNS:
        before = target.tokens
        rounds = list(talk.reply(turn, 12, temperature=0))
        read = target.tokens - before - sum(len(done.tokens) for done in rounds)
        # An answer's last token is read with the next turn, and a turn's last one in the first round.
        assert read == talk.read == (len(turn) if known else len(turn) - 1)
        known = len(talk.ids)


@pytest.mark.parametrize("name", [*DRAFTERS, "chain of prefix", "chain of early_exit"])
@pytest.mark.parametrize("rounds", [1, 2])
def test_an_abandoned_answer_stays(name, rounds):
    talk, ids = talk_of(name), []
    for turn in TURNS[:3]:
        answer = talk.reply(turn, 40, temperature=0)
        written = tokens_of(next(answer) for _ in range(rounds))
        answer.close()
        ids += turn + written
        assert talk.ids == ids and written == plain(name, ids[:len(ids) - len(written)], len(written))
    assert tokens_of(talk.reply([1], 10, temperature=0)) == plain(name, [*ids, 1], 10)


@pytest.mark.parametrize("name", ["chain", "itself", "suffix", "chain of prefix", "chain of early_exit", "stack"])
def test_an_answer_that_is_cut_in_the_middle_of_a_round(name):
    """At the limit, and at a token that ends it: what the round wrote after it is not there in the next turn."""
    for new, stop in (1, ()), (2, ()), (3, ()), (20, (0,)), (20, (1, 3)):
        talk, ids = talk_of(name), [1, 2, 1, 2, 1]
        for turn in ids, [2, 2], [3]:
            before = [*talk.ids, *turn]
            written = tokens_of(talk.reply(turn, new, temperature=0, stop=stop))
            assert written == plain(name, before, new, stop=stop) and talk.ids == before + written


@pytest.mark.parametrize("name", ["chain", "lookup", "chain of prefix", "chain of early_exit", "tree of prefix"])
def test_going_back(name):
    """To the middle of an answer, of a question, and to the beginning."""
    talk = talk_of(name)
    for turn in TURNS:
        list(talk.reply(turn, 9, temperature=0))
    for tokens in 20, 3, 1, 0:
        talk.go_back(tokens)
        ids = [*talk.ids, 3, 0]
        assert len(ids) == tokens + 2
        assert tokens_of(talk.reply([3, 0], 9, temperature=0)) == plain(name, ids, 9)
    talk.go_back(5)
    assert tokens_of(talk.reply([], 9, temperature=0)) == plain(name, talk.ids[:5], 9)


def test_what_exceeds_the_context_is_not_appended():
    talk = talk_of("chain", context=30)
    list(talk.reply([1, 2, 3], 10, temperature=0))
    before = list(talk.ids)
    assert talk.left == 30 - len(before)
    with pytest.raises(RequestError, match="18 tokens and an answer of up to 13 exceed the context of 30"):
        list(talk.reply([1] * 5, 13, temperature=0))
    assert talk.ids == before and talk.left == 17
    assert tokens_of(talk.reply([1] * 5, 12, temperature=0)) == plain("chain", before + [1] * 5, 12)
    assert talk.left == 0
    for bad, words in [({"ids": [9]}, "outside"), ({"stop": ["\n"]}, "stop must be a list of token"),
                       ({"stop": "\n"}, "stop must be"), ({"stop": None}, "stop must"), ({"stop": 3}, "stop must"),
                       ({"ids": "ab"}, "appended must be a list of token ids"), ({"ids": None}, "appended must be"),
                       ({"max_new_tokens": "4"}, "max_new_tokens must be"), ({"seed": -1}, "a seed has 32 bits"),
                       ({"seed": False}, "seed must be")]:
        talk = talk_of("chain")
        with pytest.raises(RequestError, match=words):
            list(talk.reply(**{"ids": [1, 2], "max_new_tokens": 4, "temperature": 0} | bad))
        assert talk.ids == []
    assert talk_of("chain", context=10 ** 9).context == 96
    with pytest.raises(RequestError, match="a draft of up to 96 tokens exceeds the context of 96"):
        next(Conversation(TABLE, ModelDrafter(DRAFT_MODEL, 96)).reply([1], 4))


@pytest.mark.parametrize("name", ["itself", "suffix", "chain of early_exit", "chain of prefix"])
def test_plain_steps_are_those_of_plain_decoding_and_leave_nothing(name):
    talk = talk_of(name)
    for new in 10, 1, 2, 3:                             # some of these cut a round
        ids = [*talk.ids, 2, 3, 2]
        assert tokens_of(talk.reply([2, 3, 2], new, temperature=0)) == plain(name, ids, new)
        assert list(talk.plain_steps(3, temperature=0)) == plain(name, talk.ids, 3)


def test_an_answer_is_not_taken_up_again_after_plain_steps():
    """They have written over what follows the text."""
    talk = talk_of("chain")
    answer = talk.reply([2, 3, 2], 10, temperature=0)
    next(answer)
    list(talk.plain_steps(2))
    with pytest.raises(RequestError, match="this reply was left"):
        next(answer)


def test_a_full_conversation_has_room_for_few_plain_steps():
    """As many as a round writes at most; an answer may need as much room, too."""
    talk = talk_of("itself", context=12)
    assert len(tokens_of(talk.reply([2, 3, 2], 9, temperature=0))) == 9
    most = talk.drafter.most + 1
    assert len(list(talk.plain_steps(most + 5))) == most and talk.left == 0


def test_a_rule_by_its_name():
    talk, run = talk_of("tree"), method_of(TABLE, DRAFT_MODEL, "tree", "block", **SETTINGS).run
    written = tokens_of(talk.reply([1, 2, 3], 20, seed=4, rule=RULES["block"]))
    assert written == tokens_of(run([1, 2, 3], max_new_tokens=20, seed=4))


def test_a_drafter_for_another_vocabulary_is_refused():
    with pytest.raises(RequestError, match="vocabulary"):
        list(Conversation(TABLE, ModelDrafter(small_gpt(7, 1, 1), 2)).reply([1, 2], 4))
    with pytest.raises(RequestError, match="layers"):
        Conversation(small_gpt(4, 1, 1), ModelDrafter(small_learned("prefix", LEARNABLE), 2))


@pytest.mark.parametrize("setting", [{"dice": 7}, {"context": "9"}, {"context": 0}], ids=str)
def test_what_a_conversation_cannot_have_is_named(setting):
    with pytest.raises(RequestError, match=f"{[*setting][0]} (must be|of 1 or more)"):
        talk_of("chain", **setting)


def test_of_a_first_token_alone_there_are_no_hidden_states():
    """Those of what follows are joined to none of the target's type."""
    target = small_gpt(4, 3, 9).to(torch.bfloat16)
    model = LEARNED["eagle"](**small_learned("eagle", LEARNABLE).sizes).to(torch.bfloat16).attach(target)
    talk = Conversation(target, ModelDrafter(model, 2))
    assert tokens_of(talk.reply([1], 3)) and talk.drafter.recorded().dtype == torch.bfloat16
    read = target(torch.tensor([talk.ids[:-1]]), layers=model.layers)[1]
    assert torch.allclose(talk.drafter.recorded()[:, :read.shape[1]], read, atol=.02)


def test_no_gradient_is_kept():
    talk = talk_of("chain of prefix")
    done = next(talk.reply([1, 2, 3], 10))
    assert not done.p_target.requires_grad and torch.is_inference(done.p_target)


def overflows(after: int = 7) -> GPT:
    """All of its weights are finite, but after this token nothing is. At temperature 0 it never writes it."""
    torch.manual_seed(0)
    model = GPT(Config(32, 256, 2, 16, 2, 1, 32, tied=False)).requires_grad_(False)
    first, weight = model.blocks[0], model.embedding.weight
    weight[:, 0], weight[after], model.head.weight[after] = 0, 0, 0
    weight[after, 0], first.attention_norm.weight[0] = 1e9, 4
    first.attention.qkv.weight[-8:, 0] = 3e38
    return model


@pytest.mark.parametrize("name", ["suffix", "lookahead", "recycling", "by-survival", "chain", "chain of prefix",
                                  "chain of eagle3"])
def test_what_an_answer_without_numbers_has_left_is_not_read(name, monkeypatch):
    """Drafts are of different lengths here, and a short one reads slots that a long one has written."""
    target, ids = overflows(), [1, 2, 3, 1, 2, 3, 1, 2]
    kind, _, model = name.partition(" of ")
    draft_model = small_learned(model, target).float() if model else small_gpt(32, 1, 2)
    drafter, begun = DRAFTERS[kind].make(draft_model, Options(**SETTINGS)), []
    talk, begin = Conversation(target, drafter, 128), drafter.begin
    monkeypatch.setattr(drafter, "begin", lambda text: begun.append(text) or begin(text))
    expected = list(generate(target, ids, 20, temperature=0))
    first = tokens_of(talk.reply([1, 2], 3, temperature=0))
    with pytest.raises(LogitsError):
        list(talk.reply([3] + [7] * 16, 20, temperature=0))
    talk.go_back(5)
    assert talk.ids == [1, 2, *first]
    assert tokens_of(talk.reply([9], 9, temperature=0)) == list(generate(target, [1, 2, *first, 9], 9, temperature=0))
    talk.go_back(0)
    assert tokens_of(talk.reply(ids, 20, temperature=0)) == expected
    assert len(begun) == 1                                  # what the drafter had learnt of it may be no number, too


def test_what_plain_steps_without_numbers_have_left_is_not_read():
    """After the token that they draw, and the conversation never holds."""
    target = overflows(after=5)
    talk = Conversation(target, SuffixDrafter(8), 128)
    list(talk.reply([8, 1], 3, temperature=0))
    assert 5 in list(talk.plain_steps(9, temperature=100.0)) and 5 not in talk.ids
    list(talk.plain_steps(1, temperature=0))                # these have numbers, and mend nothing
    expected = list(generate(target, [*talk.ids, 6], 9, temperature=0))
    assert tokens_of(talk.reply([6], 9, temperature=0)) == expected


def test_what_a_drafter_refuses_is_not_appended():
    class Refuses(ModelDrafter):
        def read(self, text, rows, hidden):
            if int(text.length[0]) == 8:
                raise RequestError("not this")
            super().read(text, rows, hidden)

    talk = Conversation(TABLE, Refuses(DRAFT_MODEL, 3))
    before = [1, 2, *tokens_of(talk.reply([1, 2], 3, temperature=0))]
    with pytest.raises(RequestError, match="not this"):
        list(talk.reply([3, 3, 3], 4, temperature=0))
    assert talk.ids == before and talk.read == 1
    assert tokens_of(talk.reply([0], 4, temperature=0)) == plain("chain", [*before, 0], 4)
