"""The page that `nanospec demo --html` writes: its numbers are the rounds', nothing on it is loaded, and no text of a
model is run. What a browser shows is held to numbers that are computed here; that part needs Chromium and playwright.
"""

import json
import re
import shlex
import shutil
import subprocess
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import pytest
import torch

from nanospec.cli.demo import parsed
from nanospec.cli.method_options import topology_of
from nanospec.cli.show import page
from nanospec.cli.show.page import ShownRound, page_of, run_of
from nanospec.cli.show.steps import WatchedDice
from nanospec.methods.index import method_of
from nanospec.probs import residual
from nanospec.proof.tables import small_gpt
from nanospec.speculate import Round
from nanospec.theory import acceptance, best_gamma, expected_tokens, speedup

ROOT = Path(__file__).parents[2]
NUMBERS = {"alpha": 0.7, "gamma": 4, "c": 0.1, "v": 1.3, "speedup": 1.44, "acceptance_length": 2.5, "busy": False,
           "drafter": "chain", "method": "chain 4", "temperature": 1.0, "setting": "cpu, float64",
           "command": "python a"}
# Ends the element it stands in, asks to be run, and holds what a page, a terminal or JSON may stumble over.
HOSTILE = ("</script><script>window.ran = 1</script><img src=x onerror='window.ran = 2'>]]><!-- <script> --></pre>"
           "<!-- run -->\u2028\u2029\x00\x1b[2J\x7f\x9b\u202e\ud800\uffff&lt;\\\"' ${window.ran = 3}")
CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff\uffff]")


def letters(ids):
    return "".join(chr(97 + i % 26) for i in ids)


def a_run(drafter: str = "chain", tokens: int = 24, vocabulary: int = 11, decode=letters, prompt: str = "abc",
          draft_model: int = 2, **setting) -> tuple[list[ShownRound], dict]:
    """A small pair's rounds, and what the page is told of them. draft: the draft model's seed; 1 is the target's."""
    target, model, dice = small_gpt(vocabulary, 1, 1, 300), small_gpt(vocabulary, 1, draft_model, 300), WatchedDice([3])
    method = method_of(target, model, drafter, **{"gamma": 4} | setting)
    played = [ShownRound(done, dice.coins, 0.001, 0.004) for done in
              method.run([3, 4, 5, 3, 4, 5, 3], max_new_tokens=tokens, dice=dice)]
    return played, run_of(prompt, [0.003] * tokens, played, decode, NUMBERS)


def hostile_run(rounds: int = 3) -> dict:
    """Every token is hostile: accepted, rejected, its replacement, and the prompt."""
    p_target, q_draft = torch.tensor([[.5, .5, 0]] * 3), torch.tensor([[0., 0, 0], [.8, .2, 0], [.8, .2, 0]])
    done = Round([2, 1, 0], [-1, 0, 1], [1], 1, [1, 1], p_target, q_draft, 2)
    return run_of(HOSTILE, [0.003] * 9, [ShownRound(done, [(.1, 1.), (.9, .625)], 0.001, 0.004)] * rounds,
                  lambda ids: HOSTILE * len(ids), NUMBERS | {"command": HOSTILE, "method": HOSTILE})


class Elements(HTMLParser):
    """Every element's tag and attributes, and what stands in the scripts."""

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict]] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] += data


GRID = [list(it) for it in product((0, .3, .77, 1), (1, 2, 5, 16), (0, .05, .4), (1, 1.25, 3))]
ON_A_GRID = """grid => grid.map(([a, g, c, v]) => [expectedTokens(a, g), speedUp(a, g, c, v), bestGamma(a, g, c, v, 16),
                                                   costOfCall(g + 1, g, v)])"""


def same_formulas(theirs: list[list[float]]) -> None:
    """What ON_A_GRID has found on GRID is what theory.py says."""
    for (a, g, c, v), found in zip(GRID, theirs, strict=True):
        assert found[:2] == pytest.approx([expected_tokens(a, g), speedup(a, g, c, v)], rel=1e-12)
        assert found[2:] == [best_gamma(a, c, lambda m: 1 + (v - 1) * (m - 1) / g, 16), pytest.approx(v)]


# Without a browser

@pytest.mark.skipif(not shutil.which("node"), reason="no node here")
def test_the_formulas_without_a_browser():
    """node runs them as they stand; the best gamma is the first, the last and one between."""
    source = (Path(page.__file__).parent / "web" / "formulas.js").read_text().split("\nfunction values()")[0]
    script = f"{source}\nconsole.log(JSON.stringify(({ON_A_GRID})({json.dumps(GRID)})))"
    done = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout)
    same_formulas(theirs)
    assert {1, 16} < {found[2] for found in theirs}


@pytest.mark.parametrize("drafter", ["chain", "tree", "independent", "suffix-tree", "entropy", "stack"])
def test_its_numbers_are_the_rounds(drafter):
    """Each coin, threshold and bar, computed from the round here, in another way."""
    played, run = a_run(drafter, **({"topology": [-1, 0, 0, 1, 1, 2]} if "e" == drafter[-1] else {}))
    assert len(run["rounds"]) == len(played) and run["vocabulary"] == 11 and run["plain"] == [3.0] * 24
    seen = 0
    for it, shown in zip(played, run["rounds"]):
        done = it.done
        assert [shown[key] for key in ("tokens", "parents", "path", "steps")] == [
            done.tokens, done.parents, done.path, done.steps]
        assert shown["ms"] == [1.0, 4.0] and shown["written"] == len(done.emitted)
        assert "".join(shown["text"]) == letters(done.emitted)
        left, at = done.p_target[0], 0
        for node in range(1, len(done.tokens)):
            if done.parents[node] != at:
                assert node not in shown["judged"]
                continue
            here, x, q_draft = shown["judged"][node], done.tokens[node], done.q_draft[node]
            u, threshold = it.coins[node - len(done.tokens)]
            assert (here["u"], here["threshold"]) == (pytest.approx(u, abs=1e-4), pytest.approx(threshold, abs=1e-4))
            assert here["threshold"] == pytest.approx(min(1, (left[x] / q_draft[x]).item()), abs=1e-4)
            accepted = node in done.path
            columns = [left, q_draft] if accepted else [left, q_draft, residual(left, q_draft)]
            left, at = (done.p_target[node], node) if accepted else (columns[2], at)
            held_to(here["bars"], columns, {x} if accepted else {x, done.token})
            seen += 1
        held_to(shown["last"]["bars"], [left], {done.token})
        assert shown["last"]["token"] == done.token
    assert seen > 3
    bars = [place["bars"] for shown in run["rounds"] for place in (*shown["judged"].values(), shown["last"])]
    assert {token for its in bars for token, *_ in its} <= set(run["names"])


def held_to(bars, columns, tokens):
    """The likeliest tokens that are possible, and `tokens`, none twice, each with its probabilities."""
    shown = [token for token, *_ in bars]
    both = sum(columns[:2])
    least = min(both[token].item() for token in shown[:page.BARS])
    assert len(set(shown)) == len(shown) and tokens <= set(shown)
    assert all(both[token] > 0 for token in shown if token not in tokens)       # at T = 0 the others would be noise
    assert all(both[token] <= least + 1e-12 for token in range(len(both)) if token not in shown)
    for token, *probs in bars:
        assert probs == pytest.approx([column[token].item() for column in columns], abs=1e-4)


def test_a_model_writes_what_it_likes_and_it_stays_data():
    run = hostile_run()
    text = page_of(run)
    found = Elements(text)
    assert len(found.scripts) == 2 and json.loads(found.scripts[0]) == json.loads(json.dumps(run))
    assert not CONTROLS.search(text) and "window.ran = 1</script>" not in text
    assert "<" not in found.scripts[0]      # after <!--<script> a browser would not see the end of this script
    assert not any("onerror" in attributes for _, attributes in found.found)
    for shown in (run["prompt"], *run["names"].values(), *run["rounds"][0]["text"]):
        assert "␛[2J" in shown and "</script><script>window.ran = 1</script>" in shown and "\x1b" not in shown


def test_it_loads_nothing_and_obeys_only_its_own_script():
    text = page_of(a_run()[1])
    found = Elements(text)
    assert not re.search(r"(src|srcset|action|data|poster)=|url\(|@import|fetch\(|XMLHttp|import\(|WebSocket", text)
    assert set(re.findall(r"https?://[^\s\"']*", text)) == {"http://www.w3.org/2000/svg"}       # a name, not a place
    assert all(attributes["href"].startswith("#") for tag, attributes in found.found if "href" in attributes)
    assert not any(tag in ("link", "img", "iframe", "object", "base") for tag, _ in found.found)
    policy = next(attributes["content"] for _, attributes in found.found if "http-equiv" in attributes)
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert f"script-src '{page._hash(found.scripts[1])}'" in policy
    scripts = "".join((page.WEB / name).read_text() for name in page.SCRIPTS)
    markup = r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(|DOMParser|srcdoc"
    assert not re.search(markup, scripts)


def test_every_control_has_a_name_and_every_id_is_there_once():
    text = page_of(a_run()[1])
    found, ids = Elements(text).found, re.findall(r'\sid="([\w-]+)"', text)
    assert len(set(ids)) == len(ids)
    labels = {attributes.get("for") for tag, attributes in found if tag == "label"}
    wrapped = re.findall(r'<label[^>]*><input id="([\w-]+)"[^>]*>\s*\w', text)
    controls = [attributes for tag, attributes in found if tag == "input"]
    assert len(controls) == 6 and all(it["id"] in labels or it["id"] in wrapped for it in controls)
    assert all(words.strip() for words in re.findall(r"<button[^>]*>(.*?)</button>", text))
    named = {name for _, attributes in found for key in ("aria-labelledby", "for") if key in attributes
             for name in attributes[key].split()}
    scripts = "".join((page.WEB / name).read_text() for name in page.SCRIPTS)
    assert named | set(re.findall(r'byId\("([\w-]+)"\)', scripts)) <= set(ids)
    assert all(attributes.get("aria-label") or attributes.get("aria-labelledby") for tag, attributes in found
               if tag in ("section", "nav", "table") or attributes.get("role") in ("region", "group"))


def test_a_time_is_told_to_the_microsecond():
    played, _ = a_run()
    run = run_of("", [.0123456], [played[0]._replace(drafting=.0001239, rest=.0045678)], letters, NUMBERS)
    assert (run["plain"], run["rounds"][0]["ms"]) == ([12.346], [.124, 4.568])


def test_what_a_browser_could_not_read_is_no_page():
    with pytest.raises(ValueError):
        page_of({"speedup": float("nan")})


def test_a_page_of_256_tokens_is_small():
    """With a vocabulary as large as ours, hardly any acceptance, and trees: many rounds, each with many nodes. A
    quarter of the tokens, and so at most a quarter of a megabyte.
    """
    played, run = a_run("tree", tokens=64, vocabulary=1024, **topology_of([2, 2, 1, 1]),
                        decode=lambda ids: "\u20ac\u20ac\u20ac" * len(ids))
    assert len(played) > 24 and len(page_of(run)) < 250_000


def test_the_page_in_the_repository_is_of_these_files():
    """Its run in the templates of today is the page itself. Its command is one that can be given."""
    text = (ROOT / "docs" / "index.html").read_text()
    run = json.loads(Elements(text).scripts[0])
    assert page_of(run) == text, f"make it anew: {run['numbers']['command']}"
    assert len(text) < 1_000_000 and not CONTROLS.search(text)
    program, name, *words = shlex.split(run["numbers"]["command"])
    asked = parsed(words)
    assert (program, name) == ("nanospec", "demo") and asked.html == Path("docs/index.html")
    assert sum(shown["written"] for shown in run["rounds"]) == asked.max_new_tokens
    assert run["numbers"]["gamma"] == asked.gamma and not run["numbers"]["busy"]


# In a browser

@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here: pip install -e '.[web]'")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not chromium:
        pytest.skip("no Chromium here")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=chromium, args=[
            "--no-sandbox", "--disable-quic", "--disable-background-networking"])
        yield found
        found.close()


@pytest.fixture
def opened(browser, tmp_path):
    """opened(run) -> the page, from the disk. In the end: no error was told, and nothing but the file was asked for."""
    pages, told, asked = [], [], []

    def of(run: dict, **context):
        (tmp_path / "page.html").write_text(page_of(run), encoding="utf-8")
        tab = browser.new_page(**{"reduced_motion": "reduce"} | context)
        tab.set_default_timeout(5_000)
        tab.on("console", lambda message: told.append(message.text))
        tab.on("pageerror", lambda error: told.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto((tmp_path / "page.html").as_uri())
        pages.append(tab)
        return tab

    yield of
    for tab in pages:
        tab.close()
    assert told == [] and asked == [(tmp_path / "page.html").as_uri()] * len(pages)


def press(tab, selector: str, key: str = "Enter") -> None:
    tab.focus(selector)
    tab.keyboard.press(key)


def words(tab, selector: str) -> str:
    return " ".join(tab.locator(selector).inner_text().split())


def numbers_in(tab, selector: str) -> list[float]:
    return [float(text) for text in tab.locator(selector).all_inner_texts()]


@pytest.mark.parametrize("drafter", ["chain", "tree"])
def test_going_round_by_round(opened, drafter):
    played, run = a_run(drafter, tokens=14, topology=[-1, 0, 0, 1, 1, 2])
    tab, text = opened(run), "abc"
    for number, (done, coins, *_) in enumerate(played, 1):
        drafted = len(done.tokens) - 1
        said = words(tab, "#said")
        assert f"Round {number}: {drafted} draft token" in said and f"{len(done.path)} accepted." in said
        assert ("bonus token" in said) == (not done.rejected) and words(tab, "#place") == f"{number} of {len(played)}"
        so_far = [it.done for it in played[:number]]
        text += letters(done.emitted)
        assert tab.evaluate("[...byId('text').querySelectorAll('span:not(.round)')].map(x => x.textContent).join('')"
                            ) == text
        written, accepted = sum(len(it.emitted) for it in so_far), sum(len(it.path) for it in so_far)
        assert tab.locator("#counts dd").all_inner_texts() == [
            str(written), str(number), f"{written / number:.2f}", f"{accepted} of {drafted * number}"]
        for node in range(1, drafted + 1):
            button = tab.locator(f"#nodes button[data-node='{node}']")
            if node not in run["rounds"][number - 1]["judged"]:
                assert "never judged" in button.inner_text()
                continue
            u, threshold = coins[node - len(done.tokens)]
            outcome = button.locator(".outcome").inner_text()
            shown = re.fullmatch(r"coin (\d\.\d\d) (<|≥) (\d\.\d\d) (\w+)", outcome)
            assert shown[4] == ("accepted" if node in done.path else "rejected")
            assert (shown[2] == "<") == (u < threshold)
            assert [float(shown[1]), float(shown[3])] == pytest.approx([u, threshold], abs=0.0051)
            button.click()
            judged = run["rounds"][number - 1]["judged"][node]
            assert numbers_in(tab, "#bars .number")[:len(judged["bars"][0]) - 1] == pytest.approx(
                judged["bars"][0][1:], abs=0.00051)
            assert f"{min(1, threshold):.3f}"[:4] in words(tab, "#bars-note")
        press(tab, "#next")                                     # after the last there is none
    assert words(tab, "#place") == f"{len(played)} of {len(played)}"
    tab.click("#back")
    assert words(tab, "#place") == f"{len(played) - 1} of {len(played)}"
    assert tab.locator("#nodes ol ol").count() == (drafter == "tree")


def test_play_and_pause_by_the_keyboard(opened):
    _, run = a_run()
    tab = opened(run)
    tab.clock.install()
    press(tab, "#play")
    assert words(tab, "#play") == "Pause"
    for number in (2, 3):
        tab.clock.run_for(900 + 350 * len(run["rounds"][number - 2]["judged"]))
        assert words(tab, "#place").startswith(f"{number} of")
    press(tab, "#play", "Space")
    tab.clock.run_for(60_000)
    assert words(tab, "#play") == "Play" and words(tab, "#place").startswith("3 of")
    press(tab, "#round", "End")
    assert words(tab, "#place") == f"{len(run['rounds'])} of {len(run['rounds'])}"


def test_time_on_two_lanes(opened):
    """Rounds of 1 ms of drafting and 4 ms of the rest; eight of them are 40 ms, in which the target alone writes 13."""
    tab = opened(a_run(tokens=40)[1])
    assert "Rounds 2 to 9, 40 ms" in words(tab, "#lanes-note") and "writes 13 in" in words(tab, "#lanes-note")
    widths = tab.evaluate("[...document.querySelectorAll('.segment')].map(x => parseFloat(x.style.width))")
    assert widths[:32] == pytest.approx([100 / 160] * 32) and widths[32:40] == pytest.approx([10] * 8)
    assert widths[40:] == pytest.approx([7.5] * 12 + [7.5])


def test_the_formulas_are_those_of_python(opened):
    tab = opened(a_run()[1])
    found = NUMBERS
    assert words(tab, "#expected") == f"{expected_tokens(found['alpha'], found['gamma']):.2f}"
    assert words(tab, "#speedup") == f"{speedup(found['alpha'], found['gamma'], found['c'], found['v']):.2f}"
    same_formulas(tab.evaluate(ON_A_GRID, GRID))
    for alpha, gamma, c, v in (0.82, 7, 0.05, 1.4), (0.2, 3, 0.5, 2.0):
        for name, value in zip(("alpha", "gamma", "c", "v"), (alpha, gamma, c, v)):
            tab.fill(f"#{name}", str(value))
        assert words(tab, "#expected") == f"{expected_tokens(alpha, gamma):.2f}"
        gain = speedup(alpha, gamma, c, v)
        assert words(tab, "#speedup") == f"{gain:.2f}"
        assert ("wins" if gain > 1 else "loses") in words(tab, "#verdict")
    press(tab, "#gamma", "ArrowRight")
    assert words(tab, "#expected") == f"{expected_tokens(0.2, 4):.2f}"
    tab.click("#as-measured")
    assert words(tab, "#expected") == f"{expected_tokens(found['alpha'], found['gamma']):.2f}"


def test_the_measured_point_stands_where_it_was_measured(opened):
    """From its own axis: heights of the marks against those of the grid's numbers 0 and 1."""
    tab = opened(a_run()[1])
    zero, half, *_ = tab.evaluate("[...document.querySelectorAll('#by-alpha .grid')].map(x => +x.getAttribute('y1'))")
    unit = 2 * (zero - half) if tab.locator("#by-alpha text.end").nth(1).text_content() == "0.5" else zero - half
    marks = tab.evaluate("[...document.querySelectorAll('#by-alpha .measured')].map(x => x.getAttribute('d'))")
    for mark, value in zip(marks, (NUMBERS["acceptance_length"], NUMBERS["speedup"]), strict=True):
        x, y = map(float, re.match(r"M([-\d.]+),([-\d.]+)", mark).groups())
        assert (zero - y) / unit == pytest.approx(value) and (x + 7 - 44) / 380 == pytest.approx(NUMBERS["alpha"])


def judge_place(tab, p_target: torch.Tensor, q_draft: torch.Tensor) -> None:
    """All that the third view shows, against Python's."""
    wanted = [p_target, q_draft, p_target.minimum(q_draft), residual(p_target, q_draft), p_target]
    shown = numbers_in(tab, "#exact .number")                   # of the five charts, as they stand
    assert shown == pytest.approx(torch.cat(wanted).tolist(), abs=0.0051)
    assert f"beta = {acceptance(p_target, q_draft):.2f}" in words(tab, "#proof")
    assert "The output is p_target" in words(tab, "#proof")


def after(dist: torch.Tensor, index: int, value: float) -> torch.Tensor:
    """A bar is set to `value`; the others keep their proportions."""
    others = dist.clone()
    others[index] = 0
    return others / others.sum() * (1 - value) + value * torch.eye(len(dist))[index]


def test_dragging_bars_and_what_follows(opened):
    tab = opened(a_run()[1], viewport={"width": 1100, "height": 900})
    p_target, q_draft = torch.tensor([.4, .25, .2, .1, .05]), torch.tensor([.15, .5, .1, .2, .05])
    judge_place(tab, p_target, q_draft)
    well = tab.locator("#q-bars .well").nth(3)
    well.scroll_into_view_if_needed()
    box = well.bounding_box()
    tab.mouse.move(box["x"] + 9, box["y"] + 0.5 * box["height"])
    tab.mouse.down()
    tab.mouse.move(box["x"] + 9, box["y"] + 0.25 * box["height"], steps=3)
    tab.mouse.up()
    tab.mouse.move(box["x"] + 9, box["y"] + 0.9 * box["height"])                   # let go: nothing moves any more
    judge_place(tab, p_target, q_draft := after(q_draft, 3, 0.75))
    tab.locator("#p-bars .well").nth(0).focus()
    for key, value in ("ArrowUp", .41), ("PageUp", .51), ("ArrowLeft", .5), ("PageDown", .4), ("ArrowDown", .39):
        tab.keyboard.press(key)
        judge_place(tab, p_target := after(p_target, 0, value), q_draft)
    tab.keyboard.press("End")                                                       # p_target is certain
    judge_place(tab, torch.eye(5)[0], q_draft)
    tab.keyboard.press("Home")                                                      # all others were 0: alike
    judge_place(tab, torch.tensor([0, .25, .25, .25, .25]), q_draft)
    tab.click("#alike")
    assert "accepted with probability beta = 1.00" in words(tab, "#proof") and "nothing is left" in words(
        tab, "#left-note")


def test_the_common_mistake_is_seen(opened):
    """The replacement drawn from p_target: its total variation from p_target, computed here."""
    tab = opened(a_run()[1])
    tab.check("#mistake")
    p_target, q_draft = torch.tensor([.4, .25, .2, .1, .05]), torch.tensor([.15, .5, .1, .2, .05])
    output = p_target.minimum(q_draft) + (1 - acceptance(p_target, q_draft)) * p_target
    assert numbers_in(tab, "#output-bars .number") == pytest.approx(output.tolist(), abs=0.0051)
    assert f"{(output - p_target).abs().sum() / 2:.3f} away from p_target" in words(tab, "#proof")
    tab.click("#again")
    judge_place(tab, p_target, q_draft)


def test_what_a_model_wrote_is_shown_and_never_run(opened):
    run = hostile_run()
    tab = opened(run)
    for _ in run["rounds"]:
        for button in tab.locator("#nodes button:enabled").all():
            button.click()
        press(tab, "#next")
    assert tab.evaluate("window.ran") is None and tab.evaluate("document.scripts.length") == 2
    for selector in ("#text", "#nodes", "#bars", "#bars-title", "#said", "#summary", "#command"):
        assert "<script>window.ran = 1</script><img src=x onerror=" in words(tab, selector), selector
    assert tab.evaluate("document.images.length") == 0 and tab.evaluate("byId('text').textContent").startswith(
        run["prompt"])


def test_the_browser_obeys_no_script_but_the_pages_own(browser, tmp_path):
    """Even were somebody to put a model's text in place as markup."""
    (tmp_path / "page.html").write_text(page_of(hostile_run()), encoding="utf-8")
    tab = browser.new_page()
    tab.goto((tmp_path / "page.html").as_uri())
    tab.evaluate("document.body.append(Object.assign(document.createElement('script'), {textContent: 'ran = 4'}))")
    assert tab.evaluate("[window.ran, document.scripts.length]") == [None, 3]
    tab.close()


def test_nothing_is_built_before_its_round(opened):
    played, run = a_run()
    run["rounds"] = (run["rounds"] * 1000)[:1000]
    tab = opened(run)
    built = "document.querySelectorAll('*').length"
    assert tab.evaluate(built) < 600 and words(tab, "#place") == "1 of 1000"
    tab.fill("#round", "1000")
    assert tab.locator("#text .round").count() == 1000 and tab.evaluate(built) > 2000
    tab.fill("#round", "2")
    assert tab.locator("#text .round").count() == 2 and tab.evaluate(built) < 600


@pytest.mark.parametrize("scheme, width", [*product(["light", "dark"], [320, 1200])])
def test_readable_in_every_window(opened, scheme, width):
    """No window is scrolled sideways, and letters stand out: 4.5 times from their background (WCAG 2.2, 1.4.3)."""
    tab = opened(a_run("tree", topology=[-1, 0, 0, 1, 3])[1], viewport={"width": width, "height": 700},
                 color_scheme=scheme)
    tab.click("#next")
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    texts = tab.evaluate("""() => {
      const behind = (x) => !x ? "rgb(255, 255, 255)" : getComputedStyle(x).backgroundColor.startsWith("rgb(")
        ? getComputedStyle(x).backgroundColor : behind(x.parentElement);
      const own = (x) => [...x.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
      return [...document.body.querySelectorAll(":not(script, .segment, svg *, [aria-disabled=true])")].filter(own)
        .map((x) => [x.textContent.slice(0, 30), getComputedStyle(x).color, behind(x)]);
    }""")
    assert len(texts) > 60
    for text, colour, behind in texts:
        assert contrast(colour, behind) >= 4.5, (text, colour, behind)
    assert (luminance(texts[0][2]) < 0.1) == (scheme == "dark")


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear))


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_who_wants_no_motion_sees_none(opened):
    run = a_run()[1]
    moving = "getComputedStyle(document.querySelector('#nodes .node')).animationName"
    assert opened(run).evaluate(moving) == "none"
    assert opened(run, reduced_motion="no-preference").evaluate(moving) == "appear"


def test_the_keyboard_reaches_every_control(opened):
    """Tab goes through all of them, each has a name for a screen reader, and one sees where one is."""
    tab = opened(a_run()[1])
    wanted = tab.evaluate("[...document.querySelectorAll('a, button:enabled, input, [tabindex]')].length")
    reached = set()
    for _ in range(wanted):
        tab.keyboard.press("Tab")
        name, outline, place = tab.evaluate("""() => { const x = document.activeElement;
          return [x.ariaLabel || x.labels?.[0]?.textContent.trim() || x.textContent.trim(),
                  getComputedStyle(x).outlineStyle, [...document.querySelectorAll("*")].indexOf(x)]; }""")
        assert name and outline == "solid"
        reached.add(place)
    assert len(reached) == wanted
    assert tab.get_by_role("slider").count() == 5 + 10
