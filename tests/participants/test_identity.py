"""Ids, labels and names: what is refused before any I/O, and what the composed ids look like."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.fsm.vocabulary import Role
from quiesce.participants.errors import InvalidIdentity, QuiesceError
from quiesce.participants.identity import (
    IDENTITY_PATTERN,
    AttemptId,
    capture_key,
    captures,
    check_identity,
    check_label,
    healing_id,
    restore_wire_id,
    wire_id,
)
from quiesce.participants.layout import check_participant_name, unsafe_path_reason

# field cases F-44
BAD = [
    "../x",
    "a/../../x",
    "/etc/passwd",
    "C:\\x",
    "C:x",
    "",
    ".",
    "..",
    "a" * 300,
    "a" * 129,
    "a\x00b",
    "a\n",
    "a\nb",
    "a\N{CYRILLIC SMALL LETTER A}b",
    "\N{FULLWIDTH LATIN SMALL LETTER A}",
    "CON",
    "nul.txt",
    "com1",
    "a.",
    "a ",
    " a",
    "%2e%2e%2fx",
    ".a",
    "-a",
    "a b",
    "a\\b",
]
NO_TEXT = [7, None, True, b"a", ["a"], 1.5]

labels = st.from_regex(re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,80}[A-Za-z0-9]\Z")).filter(
    lambda label: label.split(".")[0].lower() not in {"con", "prn", "aux", "nul"} and label.lower() != "latest"
)
nonces = st.from_regex(re.compile(r"\A[0-9a-f]{8}\Z"))


@pytest.mark.parametrize("value", [*BAD, *NO_TEXT], ids=ascii)
def test_what_may_not_become_a_path_is_refused(value: object) -> None:
    """Each is refused naming the field, with the value escaped and cut; it is a ValueError and a QuiesceError."""
    with pytest.raises(InvalidIdentity, match=r"^checkpoint id: ") as refused:
        check_identity(value, field="checkpoint id")
    assert isinstance(refused.value, QuiesceError)
    assert isinstance(refused.value, ValueError)
    assert len(str(refused.value)) < 250
    assert str(refused.value).isascii()
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("value", [*BAD, "latest", "LATEST", "a" * 91], ids=ascii)
def test_labels_are_ids_that_are_short_and_not_latest(value: str) -> None:
    """A label is refused where an id is, when it is longer than 90 characters, and when it is ``latest``."""
    with pytest.raises(InvalidIdentity, match=r"^label: "):
        check_label(value)


@pytest.mark.parametrize("value", BAD, ids=ascii)
def test_names_of_models_and_resource_servers_are_ids(value: str) -> None:
    """They become a part of a path as they are."""
    for role in (Role.POLICY, Role.RESOURCES):
        with pytest.raises(InvalidIdentity):
            check_participant_name(role, value)


@pytest.mark.parametrize("value", ["", "a\x00", "a\n", "\ud800", "ä" * 257, None, 7], ids=ascii)
def test_names_of_agents_are_any_clean_text_of_up_to_512_bytes(value: object) -> None:
    """Agent names are hashed, so only what cannot be hashed safely is refused."""
    with pytest.raises(InvalidIdentity):
        check_participant_name(Role.AGENT, value)
    assert check_participant_name(Role.AGENT, "Löser / ../x") == "Löser / ../x"


@given(st.text(max_size=200))
def test_whatever_passes_matches_the_pattern_wholly(value: str) -> None:
    """No text that the wire would refuse, or that leaves its folder, passes."""
    try:
        checked = check_identity(value, field="id")
    except InvalidIdentity:
        return
    assert checked == value
    assert re.fullmatch(IDENTITY_PATTERN, value)
    assert len(value) <= 128
    assert unsafe_path_reason(value) is None


@given(labels, nonces)
def test_wire_ids_are_made_of_label_and_nonce_and_stay_short(label: str, nonce: str) -> None:
    """Ids of cuts, restores and their healings are distinct, allowed, and at most 128 characters."""
    ids = [wire_id(label, nonce), restore_wire_id(label, nonce)]
    ids += [healing_id(transaction, number) for transaction in ids for number in (1, 2)]
    assert ids[0] == f"{label}-{nonce}"
    assert ids[1] == f"restore-{label}-{nonce}"
    assert ids[2] == f"{label}-{nonce}-h1"
    assert len(set(ids)) == len(ids)
    for transaction in ids:
        assert check_identity(transaction, field="id") == transaction


def test_the_longest_label_still_gives_an_allowed_healing_of_a_restore() -> None:
    """90 characters of label leave room for everything that is put around it."""
    assert len(healing_id(restore_wire_id("a" * 90, "0" * 8), 9)) <= 128


@pytest.mark.parametrize("nonce", ["", "1234567", "123456789", "1234567G", "1234567A", "1234567\n"])
def test_a_nonce_is_eight_lower_case_hex_digits(nonce: str) -> None:
    """Anything else would make ids that are not ours."""
    with pytest.raises(InvalidIdentity, match="nonce"):
        wire_id("step-40", nonce)


@pytest.mark.parametrize("number", [0, -1, 10])
def test_healings_are_numbered_from_one(number: int) -> None:
    """The number of healings is bounded."""
    with pytest.raises(InvalidIdentity, match="healing"):
        healing_id("step-40-00000000", number)


def test_capture_keys_leave_the_first_attempt_bare() -> None:
    """The key is the rollout id, with its attempt from 1 on (wire-protocol 0.2)."""
    assert capture_key("job7.r3", 0) == "job7.r3"
    assert capture_key("job7.r3", 2) == "job7.r3-a2"


@given(st.integers(0, 30), st.integers(0, 30))
def test_a_capture_key_belongs_to_its_attempt_and_to_later_ones(captured: int, attempt: int) -> None:
    """A boundary may name a call of an earlier attempt, never of a later one."""
    assert captures(capture_key("r", captured), AttemptId("r", attempt)) is (captured <= attempt)


@pytest.mark.parametrize("key", ["r-a0", "r-a01", "r-a", "r-a1x", "s", "r-a" + "9" * 30, "r-a\N{SUPERSCRIPT TWO}"])
def test_other_keys_belong_to_no_attempt(key: str) -> None:
    """Keys that no attempt has are not taken for one, however they look."""
    assert not captures(key, AttemptId("r", 10**6))


@pytest.mark.parametrize(
    "path",
    ["", "/a", "a//b", "a/../b", "./a", "a/.", "..", "a\\b", "C:a", "a\x00", "a\nb", "a/\N{RIGHT-TO-LEFT OVERRIDE}"],
)
def test_paths_that_are_not_plain_and_relative_are_unsafe(path: str) -> None:
    """Every way out of a directory, and every name that cannot be shown, is named as unsafe."""
    assert unsafe_path_reason(path)


def test_a_plain_relative_path_is_safe() -> None:
    """The paths of the wire document are."""
    assert unsafe_path_reason("model-ledger/policy_model/storage-references.jsonl") is None
