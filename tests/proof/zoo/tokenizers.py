"""Bugs of draft models with another tokenizer.

One is not here, because it cannot be planted: a q_draft of the draft model's whole vocabulary, reported as it is for
tokens that were mapped. The wrapper never makes a q_draft. tests/methods/test_other_tokenizer.py has a drafter that
does.
"""

from nanospec.proof.zoo.plant import bug

TABLES, CHOSEN = "methods.wrappers.other_tokenizer", "methods.trees.tree_draft"

BUGS = [
    bug("mapped-on-the-way-in-alone", "generic", "the text is mapped to the draft model's ids, and its answer is not "
        "mapped back", "shared tokens", ("logits[..., self.own]", "logits[..., :len(self.own)]"), file=TABLES),
    bug("the-targets-ids-read", "generic", "the draft model reads the target's ids as if they were its own",
        "shared tokens", ("self.read_as[tokens]", "tokens"), file=TABLES),
    bug("the-first-of-two-ids", "generic", "of two ids with the same bytes the one is drafted that no text has",
        "shared tokens", ("token for token, spelling in enumerate(listed) if spelling}",
                          "token for token, spelling in reversed([*enumerate(listed)]) if spelling}"), file=TABLES),
    bug("a-string-reported-as-drawn", "generic", "a token that was chosen is reported with the draft model's doubt",
        "another tokenizer", ("return drafts_of([self.tree(b, ids) for b, ids in enumerate(text.ids())], text)",
                              "draft = drafts_of([self.tree(b, ids) for b, ids in enumerate(text.ids())], text)\n"
                              "        draft.q_draft *= 0.5\n        return draft"), file=CHOSEN),
]
