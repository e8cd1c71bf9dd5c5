"""Options that several commands take."""

import argparse

from nanospec.cli.show import options
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.index import DRAFTERS, RULES


def add_drafting(parser: argparse.ArgumentParser, draft: str, drafter: str) -> None:
    """What drafts. draft, drafter: what is taken where the user names none, in words."""
    parser.add_argument("--draft", choices=["gpt", *LEARNED], default="gpt", metavar="NAME",
                        help="the draft model: " + ", ".join(["gpt", *LEARNED]) + f"; default: {draft}")
    parser.add_argument("--drafter", choices=DRAFTERS, metavar="NAME",
                        help="how it drafts: " + ", ".join(DRAFTERS)
                        + f"; default: {drafter}, or suffix where there is no draft model")


def add_sampling(parser: argparse.ArgumentParser, temperature: float) -> None:
    """How tokens are drawn and accepted, and where. temperature: the command's default."""
    add = parser.add_argument
    add("--rule", choices=RULES, default="token", metavar="NAME",
        help="what decides which draft tokens are accepted: " + ", ".join(RULES))
    add("--temperature", type=options.TEMPERATURE, default=temperature, metavar="T",
        help=f"0 is greedy; default: {temperature}")
    add("--top-k", type=options.COUNT, metavar="N", help="only the N likeliest tokens")
    add("--top-p", type=options.TOP_P, metavar="P", help="only the likeliest tokens, up to a probability of P")
    add("--seed", type=options.SEED, default=0, metavar="N", help="of all random numbers; default: 0")
    add("--device", type=options.device, default=options.HERE, help=f"default: {options.HERE}")
