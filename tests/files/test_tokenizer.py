import base64
import os
import random
import re
from collections import Counter

import pytest

from nanospec.errors import PairError, RequestError
from nanospec.files.tokenizer import END_OF_TEXT, PATTERN, Tokenizer, merge, refusing, train, unheard

TEXT = open(random.__file__, encoding="utf-8").read()


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(train(TEXT, 511))


def test_worked_examples():
    assert merge([b"a", b"a", b"a"], b"aa") == [b"aa", b"a"]
    ranks = train("aaab aaab", 257)
    assert ranks[b"aa"] == 256 and len(ranks) == 257


def test_pieces_that_spell_the_same_are_one_token():
    """`ab+c` and `a+bc` are one token to tiktoken; were they two here, ranks and counts would drift apart."""
    ranks = train("abc abc abc bc bc bc ab ab ab", 300)
    assert len(set(ranks)) == len(ranks) and sorted(ranks.values()) == list(range(len(ranks)))


def test_tokens_end_where_words_do():
    """Letters with one mark before them, up to three digits, other marks with the lines' ends after them, blanks."""
    words = ["return", " x", "_name", ".append", "(", "123", "45", ")\n\n", " ", " y", "\n"]
    tokenizer = Tokenizer(train("".join(words) * 2, 999))
    assert [tokenizer.decode([i]) for i in tokenizer.encode("".join(words))] == words


def slow_encode(text, ranks):
    """The definition: in every word, merge the neighbours of the lowest rank until no two make a token."""
    out = []
    for word in re.findall(PATTERN, text):
        pieces = [bytes([b]) for b in word.encode()]
        while True:
            pairs = [(ranks[a + b], a + b) for a, b in zip(pieces, pieces[1:]) if a + b in ranks]
            if not pairs:
                break
            pieces = merge(pieces, min(pairs)[1])
        out += [ranks[piece] for piece in pieces]
    return out


def test_tiktoken_encodes_as_the_definition_says(tokenizer):
    assert tokenizer.encode(TEXT) == slow_encode(TEXT, tokenizer.ranks)


def test_merges_are_the_most_frequent_pairs(tokenizer):
    """An independent count, from scratch before every merge, of the first 20."""
    times = Counter(re.findall(PATTERN, TEXT))
    words = {word: [bytes([b]) for b in word.encode()] for word in times}
    for rank in range(256, 276):
        counts = Counter()
        for word, pieces in words.items():
            for a, b in zip(pieces, pieces[1:]):
                counts[a + b] += times[word]
        best = max(counts, key=lambda piece: (counts[piece], piece))
        assert tokenizer.ranks[best] == rank
        words = {word: merge(pieces, best) for word, pieces in words.items()}


def test_any_text_comes_back(tokenizer):
    dice = random.Random(0)
    texts = ["", " ", "\n\n  \n", "\r\n\t x", "naïve café", "日本語のテキスト", "👩‍👩‍👧 🇩🇪",
             "a\u0301\u200d\ufeff", "\x00\x7f", "٣²½_1__x9", f"a {END_OF_TEXT} b", TEXT]
    spaces = [chr(c) for c in range(0x110000) if chr(c).isspace()]
    texts += ["".join(chr(dice.choice([dice.randrange(0xD800), dice.randrange(0xE000, 0x110000)]))
                      if dice.random() < .7 else dice.choice(spaces) for _ in range(60)) for _ in range(300)]
    for text in texts:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert tokenizer.end_of_text not in ids
    every = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    assert tokenizer.decode(tokenizer.encode(every)) == every


def test_what_is_no_text_becomes_the_replacement_character(tokenizer):
    """A surrogate alone, as Python makes of bytes that are not UTF-8; half a character; an id that is no token."""
    assert tokenizer.decode(tokenizer.encode("a\udcffb\ud800")) == "a\ufffdb\ufffd"
    assert tokenizer.decode(list("é".encode()[:1])) == "\ufffd"
    for i in (512, 10 ** 9, 10 ** 30, -1, -512):
        assert tokenizer.decode([97, i, 98]) == "a\ufffdb"


def test_end_of_text(tokenizer):
    assert tokenizer.end_of_text == 511 and tokenizer.vocab_size == 512
    assert tokenizer.decode([tokenizer.end_of_text]) == END_OF_TEXT


def test_files_of_ranks_as_tiktoken_reads_them(tokenizer, tmp_path):
    """And what cannot be used here is refused for what it is: ids are ranks."""
    path, lines = tmp_path / "ranks.tiktoken", tokenizer._lines().splitlines()
    whole = b"\n".join(lines)
    for data in whole, whole + b"\n\n", b"\n\n" + whole, b"\r\n".join(lines) + b"\r\n":
        path.write_bytes(data)
        assert Tokenizer.load(path).ranks == tokenizer.ranks
    token, last = lines[257].split()[0], len(lines) - 1
    for changed, words in [(lines[:257] + lines[258:], "no token has the rank 257"),
                           (lines[:-1] + [lines[-1].split()[0] + b" 257"], f"no token has the rank {last}"),
                           (lines[:-1] + [lines[-1].split()[0] + b" 999999999999"], f"no token has the rank {last}"),
                           (lines + [token + b" %d" % len(lines)], "a token stands in it twice"),
                           (lines[:-1] + [lines[-1].split()[0] + b" -1"], f"no token has the rank {last}"),
                           (lines[:200], "cut short"),
                           (lines + [b"one two three"], "lines of base64 and a rank")]:
        path.write_bytes(b"\n".join(changed))
        with pytest.raises(PairError, match=words):
            Tokenizer.load(path)


def test_saved_in_tiktokens_own_format(tokenizer, tmp_path):
    from tiktoken.load import load_tiktoken_bpe
    tokenizer.save(tmp_path / "ranks.tiktoken")
    assert Tokenizer.load(tmp_path / "ranks.tiktoken").ranks == tokenizer.ranks
    assert load_tiktoken_bpe(str(tmp_path / "ranks.tiktoken")) == tokenizer.ranks


def test_a_tokenizer_is_known_by_the_ids_it_gives(tokenizer):
    other_way_round = Tokenizer(dict(reversed(tokenizer.ranks.items())))
    assert other_way_round.fingerprint() == tokenizer.fingerprint()
    a, b = tokenizer.pieces[300], tokenizer.pieces[301]
    swapped = Tokenizer(tokenizer.ranks | {a: 301, b: 300})
    assert len({tokenizer.fingerprint(), swapped.fingerprint(), Tokenizer(train(TEXT, 510)).fingerprint()}) == 3


def lines(ranks):
    return "".join(f"{base64.b64encode(piece).decode()} {rank}\n" for piece, rank in ranks.items())


BYTES = {bytes([b]): b for b in range(256)}


@pytest.mark.parametrize("text, words", [
    ("", "cut short"), ("hello", "no tokenizer's file"), ("!!! 3", "no tokenizer's file"), ("AA== 0\n", "cut short"),
    ("\n\n", "cut short"), ("\xff\xfe", "no tokenizer's file"), ("AA== 0 0\n", "no tokenizer's file"),
    ("AA== one\n", "no tokenizer's file"), (f"AA== {'x' * 9_999}\n", "no tokenizer's file"),
    ("A 0\n", "no tokenizer's file"), ("AA== 1e0\n", "no tokenizer's file"),
    (lines(BYTES)[:-4], "no tokenizer's file"), (lines(dict(list(BYTES.items())[:-1])), "cut short"),
    (lines(BYTES).replace(" 7\n", " 8\n"), "no token has the rank 7"),
    (lines(BYTES).replace(" 7\n", " -7\n"), "altered"),
    (lines(BYTES) + "AA== 256\n", "no tokenizer's file, lines of base64 and a rank: a token stands in it twice$"),
    (lines({b"th" if piece == b"q" else piece: rank for piece, rank in BYTES.items()}), "the byte 113 has no rank")])
def test_a_file_that_is_no_tokenizers(tmp_path, text, words):
    """One by one: nothing, words, no base64, too few; ranks that are missing, twice, negative; a byte without a rank.
    The last would kill tiktoken at the first text that has that byte."""
    (tmp_path / "ranks.tiktoken").write_text(text, encoding="utf-8")
    with pytest.raises(PairError, match=words) as raised:
        Tokenizer.load(tmp_path / "ranks.tiktoken")
    assert str(raised.value).isprintable() and len(str(raised.value)) < 500 + len(str(tmp_path))
    assert str(raised.value).startswith(f"{tmp_path / 'ranks.tiktoken'} is ")


def test_each_merge_is_a_step():
    steps = []
    assert len(train("aaab aaab", 300, lambda: steps.append(1))) == 256 + len(steps) > 258


def test_same_text_same_ranks(tokenizer):
    assert list(train(TEXT, 511).items()) == list(tokenizer.ranks.items())


def test_vocab_size_below_the_bytes():
    with pytest.raises(ValueError, match="256"):
        train("x", 100)


def test_what_an_engine_says_is_not_heard_and_what_is_said_later_is(capfd):
    before = len(os.listdir("/dev/fd"))
    with unheard():
        os.write(2, b"a page about itself")
    with pytest.raises(ValueError), unheard():
        os.write(2, b"another one")
        raise ValueError
    os.write(2, b"later")
    assert capfd.readouterr().err == "later" and len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, OSError, PairError, MemoryError])
def test_an_interruption_is_no_fault_of_a_text(error):
    """Whatever else an engine in another language gives up with is one."""
    with pytest.raises(RequestError if error is MemoryError else error, match="at work"):
        with refusing("this text cannot be encoded"):
            raise error("at work")
