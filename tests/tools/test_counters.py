"""What engines print, as `nanospec why --counters` reads it: lines as the engines write them. Numbers are by hand."""

import pytest

from nanospec.cli import why
from nanospec.cli.engine_lines import read_counters
from nanospec.errors import NanospecError

LABELS = 'engine="0",model_name="m"'
METRICS = f"""# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{{{LABELS}}} 157.0
vllm:spec_decode_num_drafts_created{{{LABELS}}} 1.7640000e+09
vllm:spec_decode_num_draft_tokens_total{{{LABELS}}} 628.0
vllm:spec_decode_num_accepted_tokens_total{{{LABELS}}} 226.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{{LABELS},position="0"}} 98.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{{LABELS},position="1"}} 63.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{{LABELS},position="2"}} 41.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{{LABELS},position="3"}} 24.0
vllm:generation_tokens_total{{{LABELS}}} 384.0
"""
LOG = """INFO 05-30 07:49:21 [loggers.py:271] Engine 000: Avg prompt throughput: 1505.3 tokens/s, Running: 0 reqs
INFO 05-30 07:49:21 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 3.07, Accepted throughput: 1.05 \
tokens/s, Drafted throughput: 1.51 tokens/s, Accepted: 141 tokens, Drafted: 204 tokens, Per-position acceptance rate: \
0.897, 0.676, 0.500, Avg Draft acceptance rate: 69.1%
INFO 05-30 07:49:31 [metrics.py:101] SpecDecoding metrics: Draft acceptance rate: 33.8%, Mean acceptance length: 2.01, \
Accepted: 206 tokens, Drafted: 609 tokens, Per-position acceptance rate: 0.601, 0.286, 0.128
INFO 05-30 07:49:41 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 1.00, Accepted throughput: 0.00 \
tokens/s, Drafted throughput: 0.90 tokens/s, Accepted: 0 tokens, Drafted: 9 tokens, Per-position acceptance rate: \
0.000, 0.000, 0.000, Avg Draft acceptance rate: 0.0%
"""
SGLANG = """[2026-09-27 00:15:25 TP0] Prefill batch. #new-seq: 1, #new-token: 128, #running-req: 4, #queue-req: 0
[2026-09-27 00:15:25 TP0] Decode batch, #running-req: 10, #full token: 685000, token usage: 0.49, accept len: 2.80, \
accept rate: 0.60, cuda graph: True, gen throughput (token/s): 84.4, #queue-req: 0
[2026-09-27 00:15:26 TP0] Decode batch. #running-req: 5, #token: 685000, token usage: 0.49, accept len: 2.50, \
accept rate: 0.50, cuda graph: True, gen throughput (token/s): 84.4, #queue-req: 0,\x20
[2026-09-27 00:15:27 TP0] Decode batch. #running-req: 0, #token: 0, token usage: 0.00, accept len: 0.00, \
accept rate: 0.00, cuda graph: True, gen throughput (token/s): 0.0, #queue-req: 0
"""
REQUEST = ("0.06.896.015 I slot print_timing: id  1 | task 0 | draft acceptance = 0.64479 (  167 accepted /   259 "
           "generated), mean acceptance length =  2.92, acceptance rate per position = (0.805, 0.632, 0.483)\n")
OLDER = "57.42 I draft acceptance rate = 0.69953 (  149 accepted /   213 generated)\n"
STATISTICS = ("0.06.896.057 I statistics     draft-eagle3: #calls(b,g,a) =    1     87     87, #gen drafts =     87, "
              "#acc drafts =    70, #gen tokens =    259, #acc tokens =   167, #mean acc len = 2.92, #acc rate/pos = "
              "(0.805, 0.632, 0.483), dur(b,g,a) = 0.005, 325.555, 0.114 ms\n")
NGRAM = ("5.05.552.782 I statistics ngram-mod: #calls(b,g,a) = 11 800 4, #gen drafts = 4, #acc drafts = 4, #gen tokens "
         "= 256, #acc tokens = 47, dur(b,g,a) = 0.340, 2.107, 1.102 ms\n")
IDLE = ("5.05.552.783 statistics ngram-cache: #calls(b,g,a) = 11 800 0, #gen drafts = 0, #acc drafts = 0, #gen tokens "
        "= 0, #acc tokens = 0, dur(b,g,a) = 0.340, 2.107, 0.000 ms\n")


@pytest.fixture
def read(tmp_path):
    def of(text, *options):
        (tmp_path / "f").write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_counters(tmp_path / "f", *options)
    return of


def test_vllms_metrics(read):
    """Over all engines of a server. When a counter was made is no count."""
    its, = read(METRICS)
    assert (its.engine, its.drafts, its.drafted) == ("vLLM", 157, 628)
    assert its.length == pytest.approx(1 + 226 / 157) and its.rate == pytest.approx(226 / 628)
    assert its.curve == pytest.approx((98 / 157, 63 / 157, 41 / 157, 24 / 157))
    its, = read("".join(line + "\n" for line in METRICS.splitlines() if "per_pos" not in line))
    assert its.curve == () and its.length == pytest.approx(1 + 226 / 157)
    both, = read(METRICS + METRICS.replace('engine="0"', 'engine="1"').replace("} 98.0", "} 101.0").replace(
        "} 226.0", "} 229.0").replace("} 157.0", "} 1.63e+02"))
    assert read(METRICS.replace("157.0", "999999999999999"))[0].drafts == 10 ** 15 - 1
    begun, = read(METRICS + METRICS.splitlines()[2].replace('engine="0"', 'engine="1"'))    # it has no others yet
    assert begun.drafts == 314 and begun.drafted == 628
    uneven, = read(METRICS.replace("} 63.0", "} 99.0").replace("} 226.0", "} 262.0"))       # it came in between
    assert uneven.curve[:2] == pytest.approx((98 / 157, 99 / 157))
    assert both.drafts == 320 and both.curve[0] == pytest.approx(199 / 320)
    assert both.length == pytest.approx(1 + 455 / 320)


def as_engine(engine: int, drafts: int, accepted: int) -> str:
    """So many drafts of 4; of their tokens so many are accepted, all of them at the first place."""
    text = "".join(line for line in METRICS.splitlines(True) if "per_pos" not in line or 'position="0"' in line)
    for before, now in ("98", accepted), ("226", accepted), ("628", 4 * drafts), ("157", drafts):
        text = text.replace(f"}} {before}.0", f"}} {now}.0")
    return text.replace('engine="0"', f'engine="{engine}"')


@pytest.mark.parametrize("engines, said", [
    ([(150, 138), (200, 24)], 'engine="0" 0.23, engine="1" 0.03. '),
    ([(150, 138), (300, 216), (250, 100)], 'engine="0" 0.23, engine="1" 0.18, engine="2" 0.10. '),
    ([(150, 138), (50, 0)], 'engine="0" 0.23, engine="1" 0.00. '), ([(150, 138), (49, 0)], None),   # too few to tell
    ([(150, 138), (500, 320)], None), ([(150, 138)], None), ([(150, 0), (200, 0)], None)])          # 1.44 times
def test_engines_that_their_sum_hides_are_named(engines, said, read):
    its, = read("".join(as_engine(number, *counts) for number, counts in enumerate(engines)))
    assert its.drafts == sum(drafts for drafts, _ in engines)
    words = f"Engines differ in their acceptance rate: {said}The other numbers and the shape are of all together"
    assert words in its.notes[-1] if said else len(its.notes) == 2


@pytest.mark.parametrize("other, said", [("2.00", None), ("1.90", "accept len: DP0 2.40, DP1 1.90. ")])
def test_replicas_that_their_mean_hides_are_named(other, said, read):
    """1.40 accepted draft tokens in a round are 1.4 times as many as 1.00, and 1.56 times as many as .90."""
    line = "[2026-09-27 00:15:25 {} TP0] Decode batch, #running-req: 10, accept len: {}, "
    text = "\n".join([line.format("DP0", "2.00"), line.format("DP0", "2.80"), line.format("DP1", other)])
    its, = read(text)
    assert its.length == pytest.approx((4.8 + float(other)) / 3)
    assert said in its.notes[1] if said else len(its.notes) == 1
    assert len(read(text.replace(" DP", " PP"))[0].notes) == 1


def test_vllms_log(read):
    """68 drafts, 203, and 3 of which nothing was accepted: 204, 609 and 9 tokens. Two forms of the line."""
    its, = read(LOG)
    assert its.drafts == pytest.approx(274) and its.drafted == 822 and its.rate == pytest.approx(347 / 822)
    assert its.length == pytest.approx(1 + 347 / 274)
    assert its.curve[0] == pytest.approx((.897 * 68 + .601 * 203) / 274) and len(its.curve) == 3
    assert any("computed from printed shares" in note for note in its.notes)
    oldest, = read("SpecDecoding metrics: Draft acceptance rate: 50.0%, Mean acceptance length: 2.50, Accepted: 60 "
                   "tokens, Drafted: 120 tokens,")
    assert oldest.drafts == pytest.approx(40) and oldest.length == pytest.approx(2.5) and oldest.curve == ()
    rounded, = read("SpecDecoding metrics: Mean acceptance length: 1.00, Accepted: 3 tokens, Drafted: 9000 tokens,")
    assert rounded.drafts is None and rounded.rate == 3 / 9000                  # 1.00 may be 1.004


def test_drafts_of_different_lengths(read):
    """Half as many draft tokens as places: 100 drafts of three places, 150 tokens, .6 + .3 + .1 of 100 accepted."""
    its, = read("SpecDecoding metrics: Mean acceptance length: 2.00, Accepted: 100 tokens, Drafted: 150 tokens, "
                "Per-position acceptance rate: 0.600, 0.300, 0.100, Avg Draft acceptance rate: 66.7%")
    assert its.drafts == pytest.approx(100) and its.drafted == 150
    its, = read("SpecDecoding metrics: Accepted: 1000 tokens, Drafted: 3015 tokens, Per-position acceptance rate: "
                "0.500, 0.300, 0.200")                  # 1,000 drafts, about: they have three places, and not four
    assert its.drafts == pytest.approx(1000) and its.curve == pytest.approx((.5, .3, .2))


@pytest.mark.parametrize("accepted, drafted, shares, drafts", [
    (0, 9_000_000, "0.9", None), (0, 12, "0.000, 0.000", 6), (90, 300, "0.60, 0.30", 100), (10, 4000, "0.010", 1000),
    (40_950, 409_500_000, "0.4", 409_500_000 / 3995)])
def test_how_many_drafts_there_were_follows_from_shares(accepted, drafted, shares, drafts, read):
    """Every draft had as many places as shares are printed, or more: the fewest that fit. 10 accepted of 4,000 and a
    share of 0.010 fit four places. Where none fits and nothing was accepted it is not known.
    """
    its, = read(f"SpecDecoding metrics: Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
                f"Per-position acceptance rate: {shares}")
    assert its.drafts == (None if drafts is None else pytest.approx(drafts)) and its.drafted == drafted


def test_sglangs_log(read):
    """10 requests and 5: (28 + 12.5) / 15. A line without requests stands for nothing."""
    its, = read(SGLANG)
    assert its.length == pytest.approx(2.7) and its.rate is None and its.curve == () and its.drafts is None
    assert any("0.57, is accepted of drafted in newer versions" in note for note in its.notes)
    assert read(SGLANG.replace("2.80", "1.00"))[0].length == pytest.approx(1.5)     # 10 requests accept nothing


@pytest.mark.parametrize("gamma, rate, words", [
    (3, "0.60", "0.60, is accepted of drafted, without the bonus token."),              # 1.8 / 3
    (3, "0.70", "0.70, is with the bonus token on both sides."),                        # 2.8 / 4
    (3, "0.63", "0.63, is neither 0.60, accepted of drafted, nor 0.70"),
    (2, "0.40", "0.40, is neither 0.90, accepted of drafted, nor 0.93")])
def test_sglangs_two_accept_rates(gamma, rate, words, read):
    line = SGLANG.splitlines()[1].replace("accept rate: 0.60", f"accept rate: {rate}")
    its, = read(line, gamma)
    assert its.rate == pytest.approx(1.8 / gamma) and words in " ".join(its.notes)


def test_a_draft_that_is_always_accepted_whole_is_no_longer_than_gamma(read):
    """Two tokens and the bonus token."""
    line = SGLANG.splitlines()[1].replace("len: 2.80", "len: {}")
    assert read(line.format("3.00"), 2)[0].rate == 1
    with pytest.raises(NanospecError, match="has an accept len of 3.01: drafts are longer than --gamma 2"):
        read(line.format("3.01"), 2)


def test_llamas_log(read):
    """Each drafter's last statistics line; what stands for each request is the same again."""
    earlier = STATISTICS.replace("87,", "12,").replace("259", "36").replace("167", "20")
    eagle, ngram = read(REQUEST + earlier + STATISTICS + NGRAM)
    assert (eagle.engine, eagle.drafts, eagle.drafted) == ("llama.cpp", 87, 259)
    assert eagle.curve == pytest.approx((.805, .632, .483))
    assert eagle.length == pytest.approx(1 + 167 / 87) and "draft-eagle3" in eagle.notes[0]
    assert ngram.length == pytest.approx(1 + 47 / 4) and ngram.curve == () and ngram.rate == pytest.approx(47 / 256)


@pytest.mark.parametrize("drafted, accepted, curve", [(89, 54, (.6,)), (90, 54, (.6,)), (91, 54, ()), (91, 55, ())])
def test_of_drafts_of_one_token_the_place_is_known(drafted, accepted, curve, read):
    """54 of 90 drafts have one that was accepted. Where one more was drafted, one of them has two places."""
    its, = read(statistics(90, 54).replace("gen tokens = 180", f"gen tokens = {drafted}").replace(
        "acc tokens = 54", f"acc tokens = {accepted}"))
    assert its.curve == curve and its.rate == accepted / drafted


def statistics(drafts: int, accepted: int) -> str:
    return (f"1.00 I statistics draft-simple: #calls(b,g,a) = 1 2 3, #gen drafts = {drafts}, #acc drafts = {accepted}, "
            f"#gen tokens = {2 * drafts}, #acc tokens = {accepted}, dur(b,g,a) = 0.005, 325.555, 0.114 ms\n")


@pytest.mark.parametrize("counts, drafts, fell", [
    ([(10, 4), (90_000, 33_000), (60, 7)], 90_000, True),                   # another slot, or a restart
    ([(100, 50), (10, 4), (200, 90), (20, 7), (300, 110), (30, 9)], 300, True),
    ([(100, 50), (110, 20)], 110, True), ([(40, 10), (40, 10), (70, 12)], 70, False)])
def test_where_counters_fall_nothing_is_added_and_it_is_said(counts, drafts, fell, read):
    its, = read("".join(statistics(*its) for its in counts))
    assert its.drafts == drafts and its.drafted == 2 * drafts and its.length == 1 + dict(counts)[drafts] / drafts
    assert ("Counters fall in this log (a restart, or slots" in " ".join(its.notes)) == fell


def test_a_drafter_that_never_drafted_is_named(read):
    eagle, ngram = read(IDLE + STATISTICS + NGRAM)
    assert eagle.notes[-1] == ngram.notes[-1] == "Drafter ngram-cache never drafted."
    assert "never" not in " ".join(read(NGRAM)[0].notes)
    assert "never" not in " ".join(read(IDLE.replace("cache", "mod") + NGRAM)[0].notes)


def test_llamas_requests(read):
    """Where there are no statistics: 167 / 1.92 drafts, twice. An older line counts no drafts."""
    its, = read(REQUEST * 2)
    assert its.drafts == pytest.approx(2 * 167 / 1.92) and its.curve == pytest.approx((.805, .632, .483))
    older, = read(OLDER)
    assert older.rate == pytest.approx(149 / 213) and older.length is None and older.curve == ()
    both, = read(OLDER + REQUEST)                                          # of one of them nobody knows how many drafts
    assert both.rate == pytest.approx(316 / 472) and both.length is None and both.curve == ()
    mean = "I slot | draft acceptance = 0.75000 (  300 accepted /   400 generated), mean len =  2.50\n"
    mean_alone, = read(mean)
    assert mean_alone.drafts == pytest.approx(200) and mean_alone.curve == ()
    without_places, = read(REQUEST + mean)
    assert without_places.drafts == pytest.approx(200 + 167 / 1.92) and without_places.curve == ()


def test_llama_leaves_out_places_that_were_never_accepted(read):
    its, = read(STATISTICS.replace("259", "435").replace("(0.805, 0.632, 0.483)", "(0.966, 0.954)"))
    assert its.curve == pytest.approx((.966, .954, 0, 0, 0))               # 435 / 87 tokens in a draft
    assert len(read(STATISTICS.replace("259", "9000000"))[0].curve) == 4096     # whatever a file says


def test_drafts_are_counted_although_shares_have_three_digits(read):
    """1,203 drafts of five places, of which 7 and 2 of the first ones were accepted: .0058 and .0017 of them."""
    its, = read("slot | draft acceptance = 0.00150 (  9 accepted /  6015 generated), mean acceptance length = 1.01, "
                "acceptance rate per position = (0.006, 0.002)\n")
    assert its.drafts == pytest.approx(1203) and its.curve == pytest.approx((.006, .002, 0, 0, 0))


def test_a_line_in_which_nothing_was_drafted_counts_nothing(read):
    its, = read(LOG + LOG.splitlines()[-1].replace("Drafted: 9 ", "Drafted: 0 ").replace("0.000", "nan"))
    assert its.drafts == pytest.approx(274) and its.drafted == 822 and len(its.curve) == 3


def test_bytes_that_are_no_text_do_not_hide_a_line(read):
    assert read(LOG.encode().replace(b"[m", b"\xff[m"))[0].drafts == pytest.approx(274)


def test_a_list(read):
    """2 of 5 rounds accept all three draft tokens, 3 two at least, 4 one at least. With the bonus token it has no 0."""
    for text, options in (("3, 0, 1\n3 2\n", (3,)), ("[4, 1, 2, 4, 3]", (3, "with"))):
        its, = read(text, *options)
        assert its.curve == pytest.approx((.8, .6, .4)) and its.length == pytest.approx(2.8)
        assert (its.drafts, its.drafted) == (5, 15) and its.rate == pytest.approx(9 / 15)


PLACE = 'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 1\n'


@pytest.mark.parametrize("text, options, words", [
    ("", (), "is no list of whole numbers"), (b"\xff\x00\xfe", (), "is no list"), ("1 2 -3", (3,), "is no list"),
    ("1.5 2", (3,), "is no list"), ("99999", (3,), "is no list"), ("\u0663 0", (3,), "is no list"),
    ("0 1 2", (), "how long drafts were: --gamma N"), ("1 2 3", (3,), "has no 0: does it count the bonus token?"),
    ("0 4", (3,), "4 accepted draft tokens at most"), ("0 1", (3, "with"), "-1 at least"),
    (METRICS + LOG, (), "vLLM's metrics and vLLM's log: give one"), (LOG + SGLANG, (), "vLLM's log and SGLang's log"),
    (METRICS * 2, (), "line 14: the same counter again"), (METRICS.replace("157.0", "0"), (), "no draft was counted"),
    (METRICS.replace("157.0", "NaN"), (), "line 3: 'NaN' is"), (METRICS.replace("157.0", "-1"), (), "line 3: '-1' is"),
    (METRICS.replace("157.0", "1e15"), (), "line 3: '1e15' is"),
    (METRICS.replace("} 98.0", "} 198.0"), (), "more often than the one before it"),
    (METRICS.replace("} 24.0", "} 64.0"), (), "more often than the one before it"),
    (METRICS.replace("226.0", "326.0"), (), "226 tokens accepted by place, and 326 in all"),
    (METRICS.replace('position="2"', 'position="4"'), (), 'have no position="2" and have later ones'),
    (METRICS.replace('position="3"', 'position="99999"'), (), "no position"), (PLACE, (), "have no num_drafts"),
    (METRICS + METRICS.replace('"m"', '"n"'), (), "of 2 models"),
    (METRICS.replace('position="3"', 'position="4095"'), (), "line 10: no position that a draft can have"),
    (METRICS.replace('position="3"', 'position="4094"'), (), 'have no position="3" and have later ones'),
    ("vllm:spec_decode_num_drafts_total 5\n", (), "have no num_draft_tokens"),
    (METRICS.replace("num_accepted_tokens_total", "other"), (), "have no num_accepted_tokens: is it the whole"),
    (LOG.splitlines()[-1].replace("Drafted: 9", "Drafted: 0"), (), "counts no draft token"),
    (METRICS, (5,), "--gamma for a list"), (LOG, (5,), "--gamma for a list"), (STATISTICS, (5,), "--gamma for a list"),
    (STATISTICS, (0, "with"), "--bonus is for a list"),
    (SGLANG, (3, "with"), "SGLang's log, which says this: --bonus is for a list"),
    (LOG.replace("Accepted: 141", "Accepted: none"), (), "line 2: no 'Accepted' there"),
    (LOG.replace("0.897", "0.8.97"), (), "line 2: '0.8.97' is no count"),
    (LOG.replace("0.897", "0.397"), (), "more often than the one before it"),
    (LOG.replace("Accepted: 206", "Accepted: 906"), (), "line 3: 906 accepted of 609 draft tokens"),
    (STATISTICS.replace("=    70,", "=    90,"), (), "line 1: 167 accepted of 259 draft tokens, in 90 of 87 drafts"),
    (STATISTICS.replace("=    70,", "=    0,"), (), "line 1: 167 accepted of 259 draft tokens, in 0 of 87 drafts"),
    (STATISTICS.replace("=   167,", "=    60,"), (), "line 1: 60 accepted of 259 draft tokens, in 70 of 87 drafts"),
    (STATISTICS.replace("=   167,", "=   267,"), (), "line 1: 267 accepted of 259 draft tokens"),
    (STATISTICS.replace("=    259,", "=    85,").replace("=   167,", "=   71,"), (), "71 accepted of 85 draft tokens"),
    (statistics(90, 54).replace("= 180", "= 90").replace("tokens = 54", "tokens = 55"), (), "55 accepted of 90 draft"),
    ("vllm:spec_decode_num_drafts_total" + " " * (2 ** 25 + 1), (), "bytes"),
    (SGLANG.replace("2.80", "0.80"), (), "line 2: an accept len counts the bonus token"), (SGLANG, (1,), "--gamma 1"),
    (SGLANG.replace("2.50", "2770000000.00"), (), "line 3: an accept len of 2.77e+09, which no draft can reach"),
    (SGLANG.replace("#running-req: 10", "x").replace("#running-req: 5", "y"), (), "no line with requests"),
    (STATISTICS.replace("#gen tokens", "#tokens"), (), "line 1: no '#gen tokens' there"),
    (STATISTICS.replace("=     87, #acc", "= 0, #acc"), (), "259 draft tokens, in 70 of 0 drafts"),
    (METRICS.replace("628.0", "0.0"), (), "counts no draft token"), (IDLE, (), "no draft was counted"),
    (IDLE.replace("#gen tokens = 0", "#gen tokens = 5"), (), "in 0 of 0 drafts"),
    (STATISTICS.replace("0.632", "0.932"), (), "more often than the one before it"),
    ("draft acceptance = 0.5\n", (), "line 1: no '(N accepted / N generated)' there"),
    (LOG.replace("0.897", ", ".join(["0"] * 4094)), (), "at most 4095 tokens"),     # beside two more
    (LOG.replace("0.897", ", ".join(["0"] * 4093)), (), "more often than the one before it")])
def test_what_cannot_be_is_refused_by_its_line(text, options, words, read):
    with pytest.raises(NanospecError) as refused:
        read(text, *options)
    assert words in str(refused.value) and len(str(refused.value)) < 500


def test_a_refusal_is_a_line(tmp_path, capsys):
    (tmp_path / "f").write_text("vllm:spec_decode_num_drafts_total \x1b[2J" + "9" * 10_000)
    assert why.main(["--counters", str(tmp_path / "f")]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1 and "\x1b" not in err and len(err) < 600


def test_a_log_of_megabytes_is_read_in_seconds(tmp_path):
    noise = "x" * 200 + "\n"
    (tmp_path / "f").write_text((noise * 20 + LOG) * 2000)
    assert read_counters(tmp_path / "f")[0].drafts == pytest.approx(274 * 2000)
    (tmp_path / "f").write_text("accept len: " * 10 ** 6)                   # one long line
    with pytest.raises(NanospecError):
        read_counters(tmp_path / "f")
