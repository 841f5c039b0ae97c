"""The proof: every set-up of every suite is searched to its end, every property holds, and the counts are pinned."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.pinned_states import PINNED
from support.untraced import untraced

from quiesce.fsm.explore import Exploration, explore
from quiesce.fsm.explore_model import Setup, System
from quiesce.fsm.explore_properties import ALWAYS, SOMETIMES
from quiesce.fsm.explore_site import Fault
from quiesce.fsm.explore_suites import SUITES, suite
from quiesce.fsm.machine import TransitionsEngine
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.tables.phases import DrainMode

SETUPS = {setup.name: setup for name in SUITES for setup in suite(name)}
DRAINED_FIRST = (
    "strict: policy (strict) + agent (strict), cut, loss",
    "strict: policy (strict) + resources (strict), cut, failure",
    "gym_a_single: policy (gym_a_single) + agent (gym_a_single), cut, duplicate",
    "gym_a_coordinator: policy (gym_a_coordinator) + agent (gym_a_single), cut, failure",
    "mixed: policy (gym_a_coordinator) + agent (strict), cut, restart",
)
GROUPS = sorted({name.rsplit(", ", 1)[0] for name in SETUPS})


def _counts(found: Exploration) -> tuple[int, int, int]:
    return found.states, found.transitions, found.depth


@pytest.mark.parametrize("group", GROUPS)
def test_every_property_holds_in_every_reachable_state(group: str) -> None:
    """All searches of a pair end by themselves, hold every property that they claim, and see as much as they did."""
    for name, setup in SETUPS.items():
        if name.rsplit(", ", 1)[0] != group:
            continue
        with untraced():
            found = explore(System(setup))
        assert found.complete
        assert [str(verdict) + f" {verdict.trace}" for verdict in found.violations()] == [], name
        assert _counts(found) == PINNED[name], f'    "{name}": {_counts(found)},'


def test_every_search_is_pinned() -> None:
    """No set-up goes uncounted, and no count belongs to a set-up that is gone."""
    assert set(PINNED) == set(SETUPS)


def test_the_suites_cover_every_variant_and_every_class_of_faults() -> None:
    """Each fence variant takes part in some search, and each class of faults strikes somewhere."""
    variants = {site.variant for setup in SETUPS.values() for site in setup.sites}
    assert variants == set(FenceVariant)
    struck = {fault for setup in SETUPS.values() for fault, times in setup.budgets.items() if times}
    assert struck == set(Fault)


def test_what_is_waived_is_known_and_has_a_reason() -> None:
    """A property that is not claimed is named with the reason; only what nobody can know is waived."""
    waived = {(name, reason) for setup in SETUPS.values() for name, reason in setup.waives.items()}
    assert {name for name, _ in waived} == {"settled_is_quiet", "settled_takes_next_cut"}
    assert all("known to nobody" in reason for _, reason in waived)
    assert all(setup.budgets.get(Fault.DUPLICATE) for setup in SETUPS.values() if setup.waives)


def test_every_claim_has_a_meaning_and_one_name() -> None:
    """Properties are named once and say what they mean; each that may be expected is expected by some search."""
    names = [claim.name for claim in (*ALWAYS, *SOMETIMES)]
    assert len(set(names)) == len(names)
    assert all(claim.meaning for claim in (*ALWAYS, *SOMETIMES))
    expected = {name for setup in SETUPS.values() for name in setup.expects}
    assert expected == {claim.name for claim in SOMETIMES}


@pytest.mark.parametrize("name", ["strict", "gym_a_single"])
def test_only_a_retry_lets_a_late_resume_open_what_is_restored(name: str) -> None:
    """The window that is waived: a resume without a record, a death, and a retry by whoever takes over. All three."""
    setup = next(found for found in suite(name, pairs=True) if found.name.endswith("restore, store + controller"))
    found = explore(System(replace(setup, waives={}))).violations()
    assert {verdict.name for verdict in found} == set(setup.waives)
    for verdict in found:
        steps = ("asked to abort; its record fails", "the controller dies, and another recovers", "asked to retry")
        places = [list(verdict.trace or ()).index(step) for step in (*steps, "policy: the abandoned release arrives")]
        assert places == sorted(places)
    untried = replace(setup, waives={}, budgets={**setup.budgets, Fault.RETRY: 0}, expects=())
    assert explore(System(untried)).violations() == ()


@pytest.mark.parametrize(("work", "begins"), [("cut", "close"), ("restore", "import")])
def test_to_abort_what_nobody_was_called_for_is_no_abort(work: str, begins: str) -> None:
    """That a search has seen an abort is said of one that reopens somebody, and not of one before the first call."""
    found = explore(System(SETUPS[f"strict: policy (strict) + agent (strict), {work}, no fault"]))
    trace = next(verdict.trace for verdict in found.verdicts if verdict.name == "aborted")
    assert trace is not None
    called = next(place for place, action in enumerate(trace) if action.startswith(f"policy: {begins} arrives"))
    assert called < trace.index("asked to abort") < trace.index("policy: release arrives")


@pytest.mark.parametrize("name", DRAINED_FIRST)
def test_agents_may_wait_until_the_policies_are_drained(name: str) -> None:
    """With `policies_first` every property holds as well; that of closing then asks for policies that are drained."""
    setup = SETUPS[name]
    plan = replace(setup.controller.plan, drain=DrainMode.POLICIES_FIRST)
    found = explore(System(replace(setup, controller=replace(setup.controller, plan=plan))))
    assert found.complete
    assert [str(verdict) for verdict in found.violations()] == []


def test_the_live_engine_is_explored_as_well() -> None:
    """On `transitions` a whole search has the same states and transitions: what is proven is what runs."""
    name = "gym_a_coordinator: policy (gym_a_coordinator) + agent (gym_a_single), cut, no fault"
    setup = SETUPS[name]
    live = replace(setup.controller, engine=TransitionsEngine())
    assert _counts(explore(System(replace(setup, controller=live)))) == PINNED[name]


def test_a_setup_that_makes_no_sense_is_refused() -> None:
    """A fault that strikes more often than can be counted, or a property that does not exist, is refused by name."""
    setup = next(iter(SETUPS.values()))
    with pytest.raises(ValueError, match="0 to 3 times"):
        replace(setup, budgets={Fault.LOSS: 4})
    with pytest.raises(ValueError, match=r"no property is called.*always_right"):
        replace(setup, expects=("always_right",))
    with pytest.raises(KeyError):
        suite("no such suite")


def test_an_expectation_that_is_not_met_is_a_violation() -> None:
    """A search that is told to reach what it cannot reports so: it cannot pass by seeing little."""
    setup: Setup = replace(SETUPS[next(iter(PINNED))], expects=("in_doubt",))
    assert [verdict.name for verdict in explore(System(setup)).violations()] == ["in_doubt"]
