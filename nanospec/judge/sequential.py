"""A verdict as soon as it is certain: a sampler that is far off need not draw all of its samples.

The samples are looked at several times, each time twice as many as before (alpha spending, Lan and
DeMets 1983):

    samples      125        250        500        1000       2000
    wrong if     p < a/40   p < a/40   p < a/40   p < a/40   p < a/2        a = FALSE_ALARM

Claim: a right sampler is called wrong with probability a at most.
Proof. It is called wrong if one of the looks calls it so, and these add up, whatever they have in
common: to .6 a, as each p-value is settled (stats.py). By Pearson's alone they would not: where one
outcome has .99 and four have .0025 each, of 400,000 right samplers 2.06 a were called wrong, and
.63 a with settled p-values. Where two samples are compared (`--plain`) nothing is settled: both
counts are chance there, no tail is the longer one, and it was .18 a.
What it costs: where all samples are needed, the last look has a/2 where a single one would have a.
So what it sees is stated for a/2: with 2,000 samples and 15 degrees of freedom .085 in total
variation, and not .083.
"""

from collections.abc import Callable, Sequence
from threading import Lock, Semaphore, Thread
from typing import TypeVar

from nanospec.fast.announce import announced
from nanospec.proof.stats import Fit, settled

FALSE_ALARM, MISS = 0.001, 0.01
LOOKS = 5
T = TypeVar("T")


def looks_at(samples: int, looks: int) -> list[tuple[int, float]]:
    """(how many samples have been drawn, below which p-value it is wrong), for each of at most
    `looks` looks.

    Example: looks_at(2_000, 1) is [(2_000, FALSE_ALARM)].
    """
    sizes = sorted({samples >> i for i in range(looks)} - {0})
    early = [FALSE_ALARM / 10 / (len(sizes) - 1) for _ in sizes[1:]]
    return list(zip(sizes, [*early, FALSE_ALARM / 2 if early else FALSE_ALARM]))


def sequential(draw: Callable[[int], T], samples: int, fit_of: Callable[[list[T]], Fit],
               looks: int = LOOKS, at_once: int = 1) -> tuple[list[T], Fit, float]:
    """draw(0), draw(1), ... in this order, from `at_once` threads, until a look calls them wrong,
    or to the end. A single one at once is drawn in the caller's own thread.

    Returns what was drawn, the fit of all of it, and the p-value below which it is wrong.
    """
    drawn: list[T] = []
    for size, bar in looks_at(samples, looks):
        numbers = range(len(drawn), size)
        with announced(f"drawing samples {len(drawn) + 1:,} to {size:,} of at most {samples:,}",
                       at_once=False, steps=len(numbers)) as step:
            drawn += drawn_by(draw, numbers, at_once, step)
        fit = settled(fit_of(drawn), bar)
        if fit.p_value < bar:
            break
    return drawn, fit, bar


def drawn_by(draw: Callable[[int], T], numbers: Sequence[int], at_once: int,
             step: Callable[[], None] = lambda: None) -> list[T]:
    """draw of each number, in this order; from `at_once` threads, or from the caller's own. step is
    called after each.
    """
    if at_once == 1:
        drawn = []
        for number in numbers:
            drawn.append(draw(number))
            step()
        return drawn
    found, failed = dict[int, T](), list[BaseException]()
    todo, done, lock = iter(numbers), Semaphore(0), Lock()

    def work() -> None:
        while not failed:
            with lock:
                number = next(todo, None)
            if number is None:
                return
            try:
                found[number] = draw(number)
            except BaseException as error:              # it is the caller's
                failed.append(error)
            done.release()

    try:
        # Daemons, and not an executor's: who presses Ctrl-C does not wait for a silent server.
        for _ in range(at_once):
            Thread(target=work, daemon=True).start()
        for _ in numbers:
            while not done.acquire(timeout=0.5):        # on Windows no signal ends a wait
                pass
            if failed:
                raise failed[0]
            step()
    except BaseException as error:
        failed.append(error)                            # the others begin no other
        raise
    return [found[number] for number in numbers]
