"""Servers that make the judge say what it says of none in right_servers.KINDS: all are right, and none is judged."""

PENALTY = {"defaults": {"repetition_penalty": 2.0}, "ignores": ("repetition_penalty",)}
SILENT = {"logprobs": False, "counts": None}
RARE = [        # configuration, witness, what else is asked for, and words of what is said, which is the cause
    ({"ignores": ("top_k",)}, "truth", {"settings": {"top_k": 2}}, "takes no top_k: its first token varies"),
    ({"ignores": ("min_p",)}, "truth", {"settings": {"min_p": 0.6}}, "takes no min_p: its first token varies"),
    ({"names": "others"}, "truth", {}, "names token 8, the model in the folder has 0 to 7: "),
    ({"reads": lambda ids: [*ids, *ids], "counts": None}, "truth", {}, "reads the prompt twice"),
    ({"reads": lambda ids: ids[1:], "counts": 2}, "truth", {}, "reads the prompt without its first token"),
    ({"noise": .25, "noisy from": 1, "counts": None}, "truth", {"samples": 800}, "on average: another precision?"),
    ({"shape": "drawn last"}, "logprobs", {"samples": 600}, "but for the last of the likeliest tokens"),
    ({"ends": "stops, says why"}, "logprobs", {}, "ended a text by 'stop' where 2 tokens"),
    ({"defaults": {"repetition_penalty": 2.0, "top_k": 2}, "ignores": ("repetition_penalty", "top_k")}, "logprobs",
     {"prompt": [0, 1], "samples": 300}, "of its own: a penalty, and top_k, top_p or min_p"),
    ({"declines": ("prompt",)}, "logprobs", {}, "answered 400, without a completion"),
    *(({"declines": ("prompt",), "status": status}, "logprobs", {}, f"answered {status}, without a completion ({why})")
      for status, why in ((401, "it asks for a key"), (403, "it lets nobody in without a key"),
                            (308, "it names another address: give that one"))),
    ({"declines": ("prompt",), "status": 0}, "logprobs", {}, "did not answer in full: it hung up"),
    ({"text": lambda text, prompt: prompt[-1] + text}, "plain", {"plain": {}, "prompt": "cab"},
     "do not begin at the same place: one repeats the end of the prompt"),
    ({"text": lambda text, prompt: "a" * 9_000}, "plain", {"plain": {}}, "characters where"),
    (SILENT | {"noise": 1.5}, "plain", {"plain": SILENT}, "write different texts at temperature 0, too"),
    (PENALTY | {"logprobs": False}, "plain", {"plain": {"logprobs": False}},
     "at temperature 0 repetition_penalty changes the text of one alone"),
]
