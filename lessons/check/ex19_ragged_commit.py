"""Exercise 19: every text of a batch commits what it has accepted, and no more. Held to plain lists, and walked."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product

from torch import Tensor, tensor

from lessons.check import seeds
from lessons.check.answered import pair, wholes
from lessons.check.clock import shown
from lessons.check.mistakes_in_a_batch import WRONGS
from lessons.check.engine import Exercise
from lessons.check.rounds import count, distribution_of, next_weights, right_texts, threshold
from lessons.check.seen import Failure, Row, Seen, values
from lessons.oracles import completed, product_of
from nanospec.proof.walk import walk

# For the walk: two tokens, two texts, and two calls. The second one reads what the first has left in the caches.
TARGET, DRAFT_MODEL = seeds.table(2, 3, zeros=0), seeds.table(2, 4, zeros=0)
IDS, GAMMAS, NEW = ((1, 0, 1), (0,)), (2, 0), 2
N = 16                  # as wide as all texts and caches here
NOTHING = 1             # follows a text in the small cases, as if it were text; in the walk, a 0

Case = tuple[list[list[int]], list[list[int]], list[int], list[int]]        # texts, drafts, accepted, token


def committed(f, texts: Tensor, length: Tensor, drafts: Sequence, accepted: Sequence, token: Sequence) -> tuple:
    """The texts (B, N) as lists, and their lengths, as the learner's commit has them."""
    found = f.commit(texts, length, tensor(drafts), tensor(accepted), tensor(token))
    tokens, length = pair(found, "commit must return a pair, the new tokens and the new length")
    room = texts.shape[1]
    tokens, length = whole_rows(tokens, len(drafts), room, "commit, the tokens,"), wholes(length, "commit, the length,")
    if len(length) != len(drafts) or not all(0 < n <= room for n in length):
        raise Failure(f"commit must return a length for each of {len(drafts)} texts, 1 to {room}; it returned {length}")
    return tokens, length


def slots_of(f, length: Tensor, n: int) -> list[list[int]]:
    found = whole_rows(f.slots(length, n), len(length), n, "slots")
    most = max(N, 2 * (int(length.max()) + n))
    if not all(0 <= slot < most for row in found for slot in row):
        raise Failure(f"slots must return slots in 0..{most - 1}; length {length.tolist()}, n {n}: it returned {found}")
    return found


def whole_rows(value, rows: int, columns: int, what: str) -> list[list[int]]:
    plain = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(plain, (list, tuple)) or len(plain) != rows:
        raise Failure(f"{what} must return a tensor ({rows}, {columns}); it returned {value!r:.80}")
    found = [wholes(row, what) for row in plain]
    if any(len(row) != columns for row in found):
        raise Failure(f"{what} must return a tensor ({rows}, {columns}); it returned rows of "
                      f"{', '.join(str(len(row)) for row in found)}")
    return found


def padded(texts: Sequence[Sequence[int]], filling: int = NOTHING, room: int = N) -> tuple[Tensor, Tensor]:
    return tensor([[*text] + [filling] * (room - len(text)) for text in texts]), tensor([len(text) for text in texts])


WORKED: Case = [[5, 6], [7, 8, 9]], [[6, 1, 2], [9, 3, 4]], [2, 0], [11, 12]


def contract(f) -> None:
    texts, drafts, accepted, token = WORKED
    committed(f, *padded(texts), drafts, accepted, token)
    slots_of(f, tensor([5, 4]), 3)


def worked(f) -> list[Seen]:
    return [seen_commit(f, *WORKED), seen_slots(f, (5, 4), 3)]


def seen_commit(f, texts, drafts, accepted, token, room: int = N, filling: int = NOTHING) -> Seen:
    def numbered(tokens, length) -> dict:
        places = {f"text {b}, token {i}": row[i] for b, row in enumerate(tokens) for i in range(length[b])}
        return {f"text {b}, length": n for b, n in enumerate(length)} | places

    right = [text + draft[1:1 + k] + [last] for text, draft, k, last in zip(texts, drafts, accepted, token)]
    return values(f"commit, texts {shown(texts)}, draft {shown(drafts)}, accepted {accepted}, token {shown(token)}: "
                  "right "
                  f"are {shown(right)}", lambda: numbered(*committed(
                      f, *padded(texts, filling, room), drafts, accepted, token)),
                  numbered(right, [*map(len, right)]))


def seen_slots(f, length: tuple[int, ...], n: int) -> Seen:
    def numbered(slots) -> dict:
        return {f"text {b}, token {i}": slot for b, row in enumerate(slots) for i, slot in enumerate(row)}

    right = [[one - 1 + i for i in range(n)] for one in length]
    return values(f"slots, length {[*length]}, n {n}: right is {right}",
                  lambda: numbered(slots_of(f, tensor(length), n)), numbered(right))


def small_cases() -> Iterator[Case]:
    """One to three texts of any small lengths, and all that can be accepted."""
    for lengths in [(2,), *product((1, 2, 4), repeat=2), (3, 1, 2)]:
        texts = [[10 * b + i for i in range(1, n + 1)] for b, n in enumerate(lengths)]
        for gamma in range(3):
            drafts = [[text[-1], *range(100 * b + 101, 100 * b + 101 + gamma)] for b, text in enumerate(texts)]
            token = [100 * b + 109 for b in range(len(texts))]
            for accepted in product(range(gamma + 1), repeat=len(texts)):
                yield texts, drafts, [*accepted], token


def every_case(f) -> list[Seen]:
    return [*(seen_commit(f, *case) for case in small_cases()),
            *(seen_slots(f, length, n) for length in [(1,), (3, 1), (2, 2), (1, 4, 2)] for n in (1, 2, 4))]


def by_seed(f) -> list[Seen]:
    """Larger batches, with no room to spare; texts of very different lengths; great tokens; any filling."""
    draw, found = seeds.chance(19), []
    for rows, gamma, most in ((1, 1, 5), (4, 5, 30), (7, 3, 12), (2, 9, 3), (5, 0, 6), (9, 4, 60)):
        lengths = [draw.randint(1, most) for _ in range(rows)]
        texts = [[draw.randrange(2 ** 40) for _ in range(length)] for length in lengths]
        drafts = [[text[-1], *(draw.randrange(2 ** 40) for _ in range(gamma))] for text in texts]
        accepted, token = [draw.randint(0, gamma) for _ in texts], [draw.randrange(2 ** 40) for _ in texts]
        filling = draw.choice((0, -1, texts[0][0], token[0]))
        found.append(seen_commit(f, texts, drafts, accepted, token, max(lengths) + gamma + 1, filling))
    return [*found, *(seen_slots(f, tuple(draw.randint(1, 10 ** 6) for _ in range(rows)), n)
                      for rows, n in ((1, 1), (3, 12), (8, 5), (2, 70)))]


def play(f, dice) -> tuple[tuple[int, ...], ...]:
    """A round of two drafts and a step of plain decoding, in one batch: what both texts have at most NEW tokens of."""
    tokens, length = padded(IDS, 0)
    caches = [[*ids[:-1]] + [0] * (N - len(ids) + 1) for ids in IDS]
    for gamma in GAMMAS:
        texts = [row[:end] for row, end in zip(tokens.tolist(), length.tolist())]
        drafts, accepted, token, at = [], [], [], slots_of(f, length, gamma + 1)
        for b, cache in enumerate(caches):
            text, drafted, q_draft, p_target = texts[b], [], [], []
            for _ in range(gamma):
                q_draft.append(distribution_of(DRAFT_MODEL, (*text, *drafted)))
                drafted.append(dice.pick(q_draft[-1]))
            for slot, read in zip(at[b], [text[-1], *drafted]):
                cache[slot] = read
            for slot in at[b]:                          # each token sees its own slot and all below
                p_target.append(distribution_of(TARGET, tuple(cache[:slot + 1])))
            accepted.append(count([dice.flip(threshold(x, p, q)) for x, p, q in zip(drafted, p_target, q_draft)]))
            drafts.append([text[-1], *drafted])
            enough = len(text) - len(IDS[b]) >= NEW     # then any token will do
            token.append(0 if enough else dice.pick(next_weights(accepted[b], p_target, q_draft)))
        rows, ends = committed(f, tokens, length, drafts, accepted, token)
        tokens, length = tensor(rows), tensor(ends)
    return tuple(tuple(row[len(ids):end][:NEW]) for ids, row, end in zip(IDS, rows, ends))


@lru_cache(maxsize=None)
def after(b: int, new: tuple[int, ...]) -> dict:
    """The target completes what a text has to NEW tokens."""
    return completed({new: 1.0}, TARGET, IDS[b], NEW)


def exact(f) -> list[Seen]:
    paths = 0

    def texts() -> dict:
        nonlocal paths
        (found, paths), whole = walk(lambda dice: play(f, Row(dice))), {}
        for new, weight in found.items():
            for both, probability in product_of(*(after(b, one) for b, one in enumerate(new))).items():
                whole[both] = whole.get(both, 0.0) + weight * probability
        return whole
    seen = values(f"two texts in one batch: the distribution of {NEW} tokens of both", texts,
                  product_of(*(right_texts(TARGET, ids, NEW) for ids in IDS)))
    return [replace(seen, paths=paths)]


EXERCISE = Exercise(
    "ex19_ragged_commit.py", ("commit", "slots"), contract,
    {"worked number": worked, "every small case": every_case, "larger batches": by_seed, "exact distribution": exact},
    WRONGS,
    ("Do it for one text with plain lists first: text + draft[1:1 + accepted] + [token]. How long is it now? Which of "
     "its tokens has the target read?",
     "Write gamma + 1 tokens after each text, whatever was accepted. What follows the new length has no meaning. "
     "So only one of them must be put right: the token at place `accepted`.",
     "written = torch.cat([draft[:, 1:], token[:, None]], 1), then written.scatter(1, accepted[:, None], "
     "token[:, None]). The places are length[:, None] + torch.arange(gamma + 1): tokens.scatter(1, places, written)"),
    [("nanospec.speculate", "one_round", "written = torch.cat", "text.commit("),
     ("nanospec.text", "Text.commit", "self.tokens.scatter_", "self.length += count"),
     ("nanospec.cache", "Cache.next_slots", "return", "clamp(min=0)")],
    may_change=("tokens of commit", "length of commit"))
