import random

import pytest

from nanospec.files.tokenizer import END_OF_TEXT, Tokenizer, merge, train

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


def slow_encode(text, ranks):
    """The definition: in every word, merge the neighbours of the lowest rank until no two make a token."""
    import re
    from nanospec.files.tokenizer import PATTERN
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
    """An independent count, from scratch before every merge, of the first 40."""
    import re
    from collections import Counter
    from nanospec.files.tokenizer import PATTERN
    words = [[bytes([b]) for b in word.encode()] for word in re.findall(PATTERN, TEXT)]
    for rank in range(256, 296):
        counts = Counter(a + b for word in words for a, b in zip(word, word[1:]))
        best = max(counts, key=lambda piece: (counts[piece], piece))
        assert tokenizer.ranks[best] == rank
        words = [merge(word, best) for word in words]


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


def test_end_of_text(tokenizer):
    assert tokenizer.end_of_text == 511 and tokenizer.vocab_size == 512
    assert tokenizer.decode([tokenizer.end_of_text]) == END_OF_TEXT


def test_saved_in_tiktokens_own_format(tokenizer, tmp_path):
    from tiktoken.load import load_tiktoken_bpe
    tokenizer.save(tmp_path / "ranks.tiktoken")
    assert Tokenizer.load(tmp_path / "ranks.tiktoken").ranks == tokenizer.ranks
    assert load_tiktoken_bpe(str(tmp_path / "ranks.tiktoken")) == tokenizer.ranks


def test_same_text_same_ranks(tokenizer):
    assert list(train(TEXT, 511).items()) == list(tokenizer.ranks.items())


def test_vocab_size_below_the_bytes():
    with pytest.raises(ValueError, match="256"):
        train("x", 100)
