"""Is a request that is served among others written as if it were alone? Each function is a check.

What every drafter goes through, by its name, is `alone` in contract.py.
"""

from collections.abc import Callable, Sequence

import torch

from lessons.oracles import product_of
from nanospec.draft import Drafter
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.serving.server import Server
from nanospec.speculate import speculate, tokens_of
from tests.proof.compare import Found

SOME_STEPS = 300        # more than any schedule takes


def joint(target, drafter: Callable[[], Drafter], settings: dict) -> Found:
    """Three requests in two rows, walked: one is read in pieces while another writes, and one takes a row that has
    become free. Their joint distribution is the product of their own.
    """
    asked = [([1, 0], 2, settings), ([0, 2, 1, 1] * 17, 1, settings), ([2, 1], 1, {"top_k": 2})]

    def play(dice):
        server = Server(target, drafter(), rows=2, dice=dice)
        requests = [server.submit(ids, max_new_tokens=new, **its) for ids, new, its in asked]
        while not all(request.done for request in requests):
            server.step()
        return tuple(tuple(request.tokens) for request in requests)

    found, paths = walk(play)
    return paths, *distance(found, product_of(*(target_distribution(target, ids, new, **its)
                                                for ids, new, its in asked)))


def schedules(target, drafter: Callable[[], Drafter], seeds: range) -> Found:
    """Requests of all lengths and settings come at any time, some are cancelled. Each has the tokens that it has alone,
    or the first of them; in the end every row is free, and nothing is kept of any request.
    """
    wrong = served = 0
    for seed in seeds:
        chance = torch.Generator().manual_seed(seed)

        def one_of(things: Sequence):
            return things[int(torch.randint(len(things), (), generator=chance))]

        server = Server(target, drafter(), one_of([1, 2, 3]))
        coming, known = 6, []
        for now in range(SOME_STEPS):
            if coming and one_of([True, True, False, False, False]):
                coming -= 1
                ids = [one_of(range(target.config.vocab_size)) for _ in range(one_of([1, 2, 5, 60, 70]))]
                settings = {"max_new_tokens": one_of([0, 1, 7, 20]), "temperature": one_of([0, 0.7, 1]),
                            "top_k": one_of([None, 2]), "seed": one_of(range(100)),
                            "stop": one_of([(), (0,)])}
                patience = one_of([0, 1, 2, 5, *[SOME_STEPS] * 8])               # then it is cancelled
                known.append((server.submit(ids, **settings), ids, settings, now + patience))
            if not coming and all(request.done for request, *_ in known):
                break
            server.step()
            for request, *_, until in known:
                if until == now and not request.done:
                    server.cancel(request)
        server.step()
        wrong += len(server.running) + len(server.waiting)
        for request, ids, settings, until in known:
            whole = tokens_of(speculate(target, drafter(), ids, **settings))
            cut = len(request.tokens) if until < SOME_STEPS else None
            wrong += not request.done or request.tokens != whole[:cut]
            served += 1
    return served, float(wrong), float(wrong)
