"""A step says the same as one line of text, and bad lines are refused with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.fuzz.dangers import DANGERS
from quiesce.fuzz.steps import (
    OWN_FIELDS,
    Bearer,
    CallStep,
    Deadline,
    Operation,
    Receipt,
    Roots,
    Send,
    Step,
    Until,
    WaitStep,
    WorkKind,
    WorkStep,
    parse_step,
    render_step,
)
from quiesce.participants.errors import ConfigurationError

IDS = st.sampled_from("abcdefghz")
ATTEMPTS = st.sampled_from("pqrstuvw")


@st.composite
def call_steps(draw: st.DrawFn) -> CallStep:
    """Any call, with only the fields that its operation has."""
    operation = draw(st.sampled_from(Operation))
    values: dict[str, st.SearchStrategy[object]] = {
        "id": IDS,
        "deadline": st.sampled_from(Deadline),
        "directory": st.sampled_from(["d1", "d2", "missing", "file"]),
        "roots": st.sampled_from(Roots),
        "attempt": ATTEMPTS,
        "receipt": st.sampled_from(Receipt),
        "long_poll": st.booleans(),
    }
    own = {name: draw(values[name]) for name in OWN_FIELDS[operation]}
    return CallStep.model_validate(
        {
            "operation": operation,
            **own,
            "send": draw(st.sampled_from(Send)),
            "bearer": draw(st.sampled_from(Bearer)),
            "spoiled": draw(st.sampled_from(["", "body.none", "type.rollout-id.null"])),
        }
    )


STEPS: st.SearchStrategy[Step] = st.one_of(
    call_steps(),
    st.builds(
        WorkStep, kind=st.sampled_from(WorkKind), attempt=ATTEMPTS, send=st.sampled_from([Send.WAIT, Send.AT_ONCE])
    ),
    st.builds(WaitStep, until=st.sampled_from(Until)),
)


@given(STEPS)
def test_text_and_step_say_the_same(step: Step) -> None:
    """What a step is rendered to is read back to it."""
    assert parse_step(render_step(step)) == step


@pytest.mark.parametrize(
    "line",
    [
        "",
        "dance a",
        "work begin p send=twice",
        "work begin p send=at_once send=wait",
        "prepare a b",
        "prepare y",
        "prepare a deadline=soon",
        "prepare a colour=red",
        "prepare a directory=d2",
        "resume a long_poll=yes",
        "commit a directory=../etc",
        "work",
        "work begin p q",
        "work sing p",
        "wait",
        "wait for ever",
        "prepare a spoiled=UPPER",
    ],
)
def test_a_line_that_is_no_step_is_refused(line: str) -> None:
    """The error quotes the line and says what is wrong with it."""
    with pytest.raises(ConfigurationError) as refused:
        parse_step(line)
    assert repr(line) in str(refused.value)


def test_every_danger_is_made_of_steps() -> None:
    """The named sequences can be read, and none is empty."""
    assert len(DANGERS) > 30
    for danger in DANGERS:
        assert danger.steps, danger.name
