"""Mutation tests of the rooms: every bug that is planted in one is caught by the check that claims it, what looks like
a bug and is exact passes, and the surgery itself is clean. Bugs of the core are in tests/core/test_mutations.py.
"""

import ast
import gc
from importlib import import_module
from pathlib import Path
from types import FunctionType

import pytest

from lessons.cascade import DEFERRALS, cascade
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.index import DRAFTERS, RULES
from nanospec.methods.rules.traversal import verify_traversal
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.methods.trees.tree_draft import ancestors_of, drafts_of
from nanospec.methods.trees.tree_reader import GPTTreeReader
from nanospec.proof.zoo import Bug, changed, planted
from nanospec.proof.zoo.plant import TOKEN, exchanges, find_functions, source_with
from nanospec.speculate import one_round, repeated, speculate, verify
from tests.proof.checks import CHECKS, OF_THE_DISTRIBUTION
from tests.proof.contract import CONTRACT, pairs_of
from tests.proof.look import look
from tests.proof.zoo import ALL_BUGS, ALL_CONTROLS, CORE_BUGS, ENOUGH
from tests.proof.zoo.lessons import OfALesson

NAMED = {bug.name: bug for bug in ALL_BUGS + ALL_CONTROLS}
SEEN = 1e-11            # a total variation that no rounding makes: ten times what a check forgives


def of_the_rooms():
    """One bug for each check and file in every run; the others before a release."""
    seen = set()
    for bug in ALL_BUGS:
        if bug not in CORE_BUGS:
            more = (bug.caught_by, bug.file) in seen
            seen.add((bug.caught_by, bug.file))
            yield pytest.param(bug, id=bug.name, marks=[pytest.mark.slow] * more)


@pytest.mark.parametrize("bug", [*of_the_rooms()])
def test_a_bug_is_caught_by_the_check_that_claims_it(bug):
    sighting = look(bug, bug.caught_by)
    assert sighting.caught, f"{bug.name}: {bug.caught_by} saw nothing"
    assert sighting.tv is None or sighting.tv > SEEN, f"{bug.name}: only {sighting.tv} off"


@pytest.mark.parametrize("control", [control for control in ALL_CONTROLS if "." in control.file],
                         ids=lambda control: control.name)
def test_a_control_passes(control):
    for check in ENOUGH[control.file]:
        sighting = look(control, check)
        assert not sighting.caught, f"{control.name}: {check} found {sighting.found}"


@pytest.mark.slow
@pytest.mark.parametrize("control", ALL_CONTROLS, ids=lambda control: control.name)
@pytest.mark.parametrize("check", OF_THE_DISTRIBUTION)
def test_a_control_passes_every_check_of_the_distribution(control, check):
    assert not look(control, check).caught


# Why there is more than one check: what small trees and chains cannot see.
BLIND = {"T2 rows": ("greedy-for-all-if-one-is",), "rules agree": ("traversal-siblings-sorted",),
         "tree caches": ("flat-at-depth-three", "elder-sibling-seen-late", "four-generations")}


@pytest.mark.parametrize("check, name", [(check, name) for check, names in BLIND.items() for name in names])
def test_each_check_has_its_reason(check, name):
    assert not look(NAMED[name], check).caught, f"{check} sees {name} too"


def codes() -> dict:
    functions = (thing for thing in gc.get_objects() if type(thing) is FunctionType)
    return {id(function): function.__code__ for function in functions
            if str(function.__module__).startswith(("nanospec.", "lessons."))}


def test_everything_is_put_back():
    before = codes()
    for bug in {bug.file: bug for bug in NAMED.values()}.values():
        with pytest.raises(KeyError), planted(bug):
            raise KeyError("on the way")
    after = codes()
    assert all(after[number] is code for number, code in before.items() if number in after)


@pytest.mark.parametrize("name, function", [
    ("four-generations", ancestors_of), ("copied-with-a-half", drafts_of), ("draft-of-another-row", verify_traversal),
    ("sibling-q-not-updated", TreeDrafter.propose), ("greedy-does-not-stop", speculate.__wrapped__),
    ("draft-path-not-gathered", GPTTreeReader.__init__)])
def test_the_surgery_reaches_methods_and_what_decorators_wrap(name, function):
    before = function.__code__
    with planted(NAMED[name]):
        assert function.__code__.co_filename == f"<{name}>"
    assert function.__code__ is before


def test_the_surgery_leaves_alone_what_has_the_same_name(monkeypatch):
    """The lambdas of a file bear one name, and so do the list comprehensions of a function."""
    for name, changed_ in (("cascade-bonus-from-the-target", {"cascade", "cascade.<locals>.judge"}),
                           ("what-was-copied-is-not-read", {"Hybrid.propose"})):
        rule = cascade("v1", 0.3, verify)                   # a closure, alive
        monkeypatch.setattr("nanospec.proof.zoo.plant.find_functions", find_functions.__wrapped__)
        assert {function.__qualname__ for function, _ in exchanges(NAMED[name])} == changed_ and rule
    keep, = (function for function, _ in exchanges(OfALesson("one", "", "", "", "lessons.cascade", (
        ('"v1": lambda q, p, a: q <', '"v1": lambda q, p, a: p <'),))))
    assert keep is DEFERRALS["v1"].__closure__[0].cell_contents


def test_two_bugs_one_within_the_other():
    truth = codes()
    with planted(NAMED["overshoot"]):
        with planted(NAMED["target-unwarped"]):
            assert one_round.__code__.co_filename == "<target-unwarped>"
        assert repeated.__code__.co_filename == "<overshoot>"
    assert all(codes()[id(function)] is truth[id(function)] for function in (repeated, one_round))


def test_a_changed_copy_leaves_what_ships_alone():
    before = codes()
    assert changed(NAMED["ratio-flipped"])["verify"].__code__.co_filename == "<ratio-flipped>"
    assert codes()[id(speculate.__wrapped__)] is before[id(speculate.__wrapped__)]


def test_a_plant_that_no_longer_fits_is_an_error():
    with pytest.raises(LookupError, match="no longer there"):
        with planted(Bug("gone", "", "", "T0", "speculate", (("no such words", ""),))):
            pass


def reformatted(source, within_brackets):
    """The same program with a blank between all tokens and no comments; within brackets as many line breaks, or one
    line for all.
    """
    lines, indent, depth = [""], "", 0
    for match in TOKEN.finditer(source):
        word, ends = match[0], match["skipped"] is not None
        depth += (word in "([{") - (word in ")]}")
        if not ends:
            lines[-1] += " " * (not lines[-1].isspace() and lines[-1] != "") + word
            lines += [indent] * (depth > 0 and within_brackets)
        elif "\n" in word and not depth and "\\" not in word:
            indent = word.rpartition("\n")[2]
            lines.append(indent)
    return "\n".join(lines)


@pytest.mark.parametrize("within_brackets", [False, True])
def test_a_plant_finds_its_place_in_a_file_that_was_reformatted(within_brackets):
    for module in {bug.module for bug in NAMED.values()}:
        source = Path(import_module(module).__file__).read_text()
        again = reformatted(source, within_brackets)
        assert again != source and ast.dump(ast.parse(again)) == ast.dump(ast.parse(source))
        for bug in (bug for bug in NAMED.values() if bug.module == module):
            found, wanted = ([match[0] for match in TOKEN.finditer(source_with(bug, text)) if match["skipped"] is None]
                             for text in (again, source))
            assert found == wanted, bug.name


def test_words_that_are_not_alone_in_a_file_are_found_by_function():
    twice = Bug("twice", "", "", "", "probs", (("logits.dtype", "logits.float().dtype"),))
    with pytest.raises(LookupError, match="not alone"):
        source_with(twice)
    words = "left = (p_target - q_draft)"
    for within, alone in (("residual", True), ("Sampling.__call__", False), ("", True)):
        bug = Bug("once", "", "", "", "probs", ((words, "left = p_target"),), within)
        if alone:
            assert "left = p_target.clamp" in source_with(bug)
        else:
            with pytest.raises(LookupError):
                source_with(bug)


def test_every_entry_says_what_was_wrong_where_and_who_sees_it():
    checks = {*CHECKS, *(f"{part}: {name}, {rule}" for part in CONTRACT for name, rule in pairs_of(part))}
    assert len(NAMED) == len(ALL_BUGS) + len(ALL_CONTROLS)
    for bug in NAMED.values():
        assert bug.what and bug.source and bug.edits and source_with(bug)
        assert bug.caught_by in checks if bug in ALL_BUGS else not bug.caught_by


def test_what_is_slow_catches_nothing_alone():
    slow = {name for name, check in CHECKS.items() if check.slow}
    slow |= {f"{part}: {name}, {rule}" for part in CONTRACT
             for name, rule in set(pairs_of(part)) - set(pairs_of(part, quick=True))}
    assert not slow & {bug.caught_by for bug in ALL_BUGS}


@pytest.mark.parametrize("part", CONTRACT)
def test_nobody_and_no_rule_is_left_out_of_a_part_in_the_tests(part):
    every, quick = pairs_of(part), pairs_of(part, quick=True)
    assert {*DRAFTERS} <= {name for name, _ in quick}
    left_out = {name for name, _ in every} - {name for name, _ in quick}
    assert left_out in (set(), {f"tree of {model}" for model in LEARNED})        # their chains go through it
    assert {rule for _, rule in quick} == {*RULES}
