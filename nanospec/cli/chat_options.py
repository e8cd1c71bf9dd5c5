"""What `nanospec chat` can be asked for."""

import argparse
from collections.abc import Sequence

from nanospec.cli.parser import Parser
from nanospec.cli.shared_options import add_drafting, add_sampling
from nanospec.cli.show import options
from nanospec.errors import RequestError
from nanospec.methods.index import DRAFTERS, GAMMA, REMEMBERING, check_remember

CONTEXT = 8192          # tokens of a conversation, where the user asks for no other number
ANSWER = 512            # tokens of an answer, or a quarter of the context


def parsed(argv: Sequence[str] | None, description: str) -> argparse.Namespace:
    """What was asked for. RequestError for what cannot be."""
    parser = Parser(prog="nanospec chat", description=description,
                            formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--weights", type=options.MODEL, default="smollm2", metavar="MODEL",
        help=options.MODEL_HELP + "; default: smollm2")
    add("--system", type=options.TEXT, metavar="TEXT", help="what the model is told before the conversation")
    add_drafting(parser, "the one beside the target", "hybrid")
    add("--gamma", type=options.GAMMA, metavar="N", help=f"draft tokens a round; default: {GAMMA}, of a chain 4")
    add("--remember", type=options.REMEMBER, default=0, metavar="N",
        help=f"how many tokens of earlier turns, also before /new, {', '.join(REMEMBERING)} may copy from; default: 0")
    add_sampling(parser, temperature=0.7)
    add("--max-new-tokens", type=options.COUNT, metavar="N", help=f"of an answer; default: {ANSWER}, or a quarter of "
                                                                  "the context")
    add("--context", type=options.COUNT, metavar="N",
        help=f"tokens of the whole conversation; default: what the model can read, at most {CONTEXT}")
    add("--dtype", choices=["auto", "float32", "bfloat16", "float16", "int8", "float64"], default="auto",
        help="auto: the fastest here; int8 rounds more, so it is taken by name alone")
    add("--measure", action="store_true",
        help="measure again what is fastest here, as after a start on a machine that was busy")
    asked = parser.parse_args(argv)
    if asked.gamma and asked.drafter and DRAFTERS[asked.drafter].sized_by != "gamma":
        raise RequestError(f"--drafter {asked.drafter} takes no --gamma")
    check_remember([asked.drafter] if asked.drafter else [], asked.remember)    # the usual ones can
    return asked
