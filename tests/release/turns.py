"""Is every method as fast as in another checkout? Both write the same texts, in turns.

    git worktree add ../before COMMIT && python tests/release/turns.py ../before

By hand, on a machine that does nothing else; ten minutes on one core.

Each checkout runs in a process of its own, on one thread, and waits while the other one works; who begins changes from
turn to turn. So both meet the same machine, and the clock compares a round here with a round there. Weights are random
and seeded, of the shapes of a small pair: what a round costs does not depend on them. A method is named where a round
is more than 3% slower at every text, or where the rounds are not the same.
"""

import argparse
import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from statistics import median

HERE = Path(__file__).parents[2]
SLOWER = 1.03
TEXTS = [*product((0, 0.8), range(2))]          # temperatures; a text that does not repeat itself, and one that does


def jobs() -> list[tuple[str, str, str]]:
    """(draft model, drafter, rule): every drafter with a GPT, every rule, every learned draft model."""
    from nanospec.methods.draft_models import LEARNED
    from nanospec.methods.index import DRAFTERS
    drafters = [("gpt", name, "token") for name in DRAFTERS]
    learned = [(name, "chain", "token") for name in LEARNED]
    return [*drafters, ("gpt", "chain", "block"), ("gpt", "tree", "traversal"), *learned]


def work() -> None:
    """Of each job that comes in, a line of JSON: seconds a round after the first, and each round's tokens, counted."""
    import torch

    from nanospec.fast.clock import timed
    from nanospec.methods.draft_models import LEARNED
    from nanospec.methods.index import method_of, most_drafted
    from nanospec.model import GPT, Config
    torch.set_num_threads(1)
    torch.manual_seed(7)
    shape = {"vocab_size": 1024, "context": 512, "kv_heads": 2}
    target = GPT(Config(**shape, layers=8, channels=384, heads=6, hidden=1024)).requires_grad_(False).eval()
    gpt = GPT(Config(**shape, layers=2, channels=128, heads=4, hidden=352)).requires_grad_(False).eval()
    text = torch.randint(1024, (48,)).tolist()
    for line in sys.stdin:
        (name, drafter, rule), (temperature, number) = json.loads(line)
        draft_model = gpt
        if name != "gpt":
            torch.manual_seed(3)
            kind = LEARNED[name]
            draft_model = kind(1024, 384, **kind.sizes_for(target.config)).attach(target).requires_grad_(False).eval()
        method = method_of(target, draft_model, drafter, rule, gamma=most_drafted(drafter, draft_model, 4))
        ids = text[:12] * 4 if number else text
        rounds, seconds = timed(method.run(ids, max_new_tokens=48, temperature=temperature, seed=5))
        after = seconds[1:] or seconds
        print(json.dumps([sum(after) / len(after), [len(done.emitted) for done in rounds]]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="the root of the other checkout")
    parser.add_argument("--turns", type=int, default=7)
    args = parser.parse_args()
    sys.path.insert(0, str(HERE))
    workers = []
    for root in args.other.resolve(), HERE:
        environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
        workers.append(subprocess.Popen([sys.executable, __file__, "work"], cwd=root, env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE))

    def ask(worker: subprocess.Popen, job: tuple) -> tuple[float, list[int]]:
        print(json.dumps(job), file=worker.stdin, flush=True)
        return json.loads(worker.stdout.readline())

    slow = []
    for job in jobs():
        ratios, same = [], True
        for its in TEXTS:
            of_turns = []
            for turn in range(args.turns + 1):                  # the first one warms up
                order = (0, 1) if turn % 2 else (1, 0)
                found = {i: ask(workers[i], (job, its)) for i in order}
                same &= found[0][1] == found[1][1]
                of_turns.append(found[1][0] / found[0][0])
            ratios.append(median(of_turns[1:]))
        slow += [" ".join(job)] * (min(ratios) > SLOWER or not same)
        print(f"{' '.join(job):32}", *(f"{ratio:.3f}" for ratio in ratios), "" if same else "other rounds", flush=True)
    print("slower, or other rounds:", ", ".join(slow) or "none")


if __name__ == "__main__":
    work() if sys.argv[1:] == ["work"] else main()
