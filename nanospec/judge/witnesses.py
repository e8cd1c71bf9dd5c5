"""What is true of a server's text? It depends on what there is to compare with.

- A second server that does not speculate (`--plain URL`): two samples of texts, the same settings.
  It sees whatever differs between the two. It cannot see what both do wrong.
- A folder with the model (`--truth FOLDER`): its own logits, as for transformers. The server must
  name its tokens by their ids. It sees everything but chance that is shared between requests.
- Neither: the logprobs that the server reports with its text, at temperature 1. It sees whether its
  tokens are drawn from what it reports. It cannot see a report that is wrong itself: a stale cache,
  a wrong row, another temperature. And what lies below the most likely tokens that it reports is
  one lump. The server must name its tokens by their ids: by their texts a right server would look
  wrong, since tokens that are parts of one character all have the same text.

Several requests are sent at once, so a server that can answers them in one batch; what they then
share is judged, too. Before a server is called wrong, doubts.py looks for another cause.
"""

from collections import Counter
from collections.abc import Sequence


from nanospec.errors import RequestError
from nanospec.judge import doubts
from nanospec.judge.defaults import of_settings
from nanospec.judge.endpoint import Endpoint
from nanospec.judge.places import TOP, Place, fit_of, places_of, reported
from nanospec.judge.sequential import LOOKS, drawn_by, sequential
from nanospec.judge.verdict import (SETTINGS, Verdict, check_task, judge, verdict_of)
from nanospec.proof.stats import Fit, two_samples

def against_plain(endpoint: Endpoint, plain: Endpoint, samples: int, seed: int) -> Verdict:
    """Do two servers, of which one speculates, write texts of one distribution? EndpointError where
    they do not, and were perhaps not asked the same.
    """
    check_task(endpoint.new, 1, samples, seed, endpoint.settings)

    def pair(i: int) -> tuple[str, str]:
        return endpoint.complete(seed + i)["text"], plain.complete(seed + i + samples)["text"]

    def fit_of(pairs: list[tuple[str, str]]) -> Fit:
        return two_samples(*map(Counter, zip(*pairs)))

    pairs, fit, bar = sequential(pair, samples, fit_of, at_once=endpoint.at_once)
    verdict = verdict_of(fit, bar, "the texts of both servers fit one distribution",
                         "the texts of the two servers are not of one distribution")
    if verdict.wrong:
        doubts.of_two(endpoint, plain, pairs, seed)
    verdict.samples = 2 * len(pairs)
    return verdict


def against_logprobs(endpoint: Endpoint, samples: int, seed: int) -> Verdict:
    """Are the tokens of a server drawn from the logprobs that it reports with them? EndpointError
    where they are not, and something else than speculation explains it.
    """
    check_task(endpoint.new, 1, samples, seed, endpoint.settings)
    if SETTINGS | endpoint.settings != SETTINGS:
        raise RequestError("logprobs are reported before or after the temperature, as a server "
                           "likes: without --plain or --truth only temperature 1 can be judged, "
                           "without top_k, top_p and min_p")

    def draw(i: int) -> tuple[int, list[Place]]:
        return i, reported(endpoint, seed + i)

    drawn, fit, bar = sequential(draw, samples, lambda drawn: fit_of(drawn, seed),
                                 at_once=endpoint.at_once)
    verdict = verdict_of(fit, bar, "its tokens fit the logprobs that it reports",
                         "its tokens do not fit the logprobs that it reports",
                         "of the tokens moved, in the order of the logprobs")
    if verdict.wrong:
        prompt = () if isinstance(endpoint.prompt, str) else endpoint.prompt
        # A look may have stopped it before: another cause must explain all samples.
        drawn += drawn_by(draw, range(len(drawn), samples), endpoint.at_once)
        doubts.of_the_last(endpoint, drawn, seed)
        of_settings(endpoint, drawn, prompt)
    return verdict


def against_model(endpoint: Endpoint, target, ids: Sequence[int], samples: int, seed: int,
                  special: Sequence[int] = ()) -> Verdict:
    """Does a server continue its prompt, the tokens `ids`, as the model does? special: the tokens
    that begin or end a text of this model. EndpointError where it does not, and by what it reports
    it reads another prompt or has other weights, or something else than speculation explains it.
    """
    settings = SETTINGS | endpoint.settings
    replies: dict[int, tuple[list[int], list[dict[int, float]]]] = {}

    def ask(number: int) -> list[int]:
        tokens, places = replies[number] = endpoint.named(number, TOP)
        doubts.of_vocabulary(endpoint, {*tokens}.union(*places), target.config.vocab_size)
        return tokens

    verdict = judge(lambda dice: ask(dice.generators[0].initial_seed()), target, ids=ids,
                    new=endpoint.new, samples=samples, seed=seed, looks=LOOKS,
                    at_once=endpoint.at_once, **settings)
    if verdict.wrong:
        doubts.of_words(endpoint, seed)
        doubts.of_prompt(endpoint, target, ids, replies[seed][1][0], settings, special)
        left = [number for number in range(seed, seed + samples) if number not in replies]
        drawn_by(ask, left, endpoint.at_once)
        places = [(number, places_of(target, ids, tokens, settings))
                  for number, (tokens, _) in replies.items()]
        of_settings(endpoint, places, ids)
        doubts.of_precision(endpoint, target, ids, [*replies.values()], settings)
    return verdict
