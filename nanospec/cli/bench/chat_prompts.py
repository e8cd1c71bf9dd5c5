"""Twenty requests to a chat model in five kinds, from what is hard to foresee to what can mostly be copied."""

from nanospec.errors import RequestError
from nanospec.files.checkpoint import Pair

LETTER = ("Dear Mr Hartley,\n\nthe boiler in the flat on the second floor has stopped again. It went out on "
          "Tuesday evening, and since then there is no hot water in the kitchen or in the bathroom. I have "
          "called the service twice, and twice they told me that they could not come before the end of next "
          "week. Please send somebody who can look at the boiler this week, or tell me that I may call "
          "another firm.\n\nYours sincerely,\nthe tenants of the second floor")
BRIDGE = ("The old stone bridge over the river was built in 1784 by masons from the valley. It has three "
          "arches and a narrow road on which two carts could not pass each other. In the flood of 1910 the "
          "middle arch broke, and for two years a ferry carried people and animals across. The arch was "
          "rebuilt in 1912 with iron bars inside. Since 1968 cars use the concrete bridge upstream, and the "
          "old bridge belongs to walkers, cyclists and the market that is held on it every first Saturday of "
          "the month.")
BEES = ("A bee colony in summer has about forty thousand workers and one queen. The queen lays up to two "
        "thousand eggs a day. A worker that has just hatched cleans cells for three days, then feeds the "
        "larvae, builds comb, and guards the entrance. Only in the last weeks of its life does it fly out "
        "for nectar and pollen. Workers that hatch in autumn live for half a year, because they have no "
        "larvae to feed; those of summer live for six weeks. In winter the colony gathers around the queen "
        "and keeps her warm by trembling.")
CODE = ("def total(orders):\n    result = 0\n    for order in orders:\n        for item in order['items']:\n"
        "            price = item['price'] * item['count']\n            if item['reduced']:\n"
        "                price = price * 0.8\n            result = result + price\n    return result\n\n\n"
        "def names(orders):\n    result = []\n    for order in orders:\n        for item in order['items']:\n"
        "            if item['name'] not in result:\n                result.append(item['name'])\n    return result\n")
CHAT: dict[str, list[str]] = {
    "chat": ["What can I do on a rainy Sunday with two small children?",
             "Explain why the sky is blue in a way that a ten-year-old understands.",
             "Write a short story about a lighthouse keeper who finds a letter.",
             "I have a job interview tomorrow. Give me five pieces of advice."],
    "code": ["Write a Python function that returns the prime numbers up to n.",
             "Write a Python class for a bank account with deposit, withdraw and balance.",
             "Write a SQL query for the ten customers who spent most last year, and explain it.",
             "Write a Python function that counts how often each word occurs in a file."],
    "rewriting": [f"Repeat the following letter, but write Mrs Lindqvist instead of Mr Hartley:\n\n{LETTER}",
                  f"Repeat this text and write 1785 instead of 1784:\n\n{BRIDGE}",
                  f"Rename the variable result to found in this code:\n\n```python\n{CODE}```",
                  f"Correct the spelling mistakes in this text:\n\n{BEES.replace('colony', 'collony')}"],
    "summary": [f"Summarize the following text in two sentences.\n\n{BRIDGE}",
                f"Summarize the following text in three bullet points.\n\n{BEES}",
                f"What does this letter ask for? Answer in one sentence.\n\n{LETTER}",
                f"Describe in one sentence for each function what this code does.\n\n```python\n{CODE}```"],
    "question": [f"{BRIDGE}\n\nWhen was the middle arch rebuilt, and how did people cross the river until then?",
                 f"{BEES}\n\nWhy do bees that hatch in autumn live longer than those of summer?",
                 f"{LETTER}\n\nSince when is there no hot water, and where?",
                 f"```python\n{CODE}```\n\nBy how much is the price of a reduced item lowered, and in which line?"],
}


def chat_prompts(pair: Pair) -> dict[str, list[list[int]]]:
    """Of each kind its prompts, as the model's chat template writes them. RequestError if it has none."""
    if getattr(pair.tokenizer, "template", None) is None:
        raise RequestError("--prompts chat is for a model with a chat template, which this one does not have")
    chat = getattr(pair.tokenizer, "chat")
    return {kind: [chat([{"role": "user", "content": text}]) for text in texts] for kind, texts in CHAT.items()}
