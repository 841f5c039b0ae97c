"""The rules of the W3C's schema for what we write of SCXML, and a strict reader of it.

The schema itself is in no registry. The rules are those of SCXML 1.0, sections 3.2 to 3.13, 5.2: which elements stand
in which, which attributes they have and must have, and of which form the values are.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from quiesce.diagrams.scxml import QUIESCE_NAMESPACE, SCXML_NAMESPACE

# element to the elements that it may hold
CHILDREN = {
    "scxml": {"state", "parallel", "final", "datamodel", "script"},
    "datamodel": {"data"},
    "data": set(),
    "state": {
        "onentry",
        "onexit",
        "transition",
        "initial",
        "state",
        "parallel",
        "final",
        "history",
        "datamodel",
        "invoke",
    },
    "final": {"onentry", "onexit", "donedata"},
    "transition": {"raise", "if", "foreach", "send", "script", "assign", "log", "cancel"},
    "log": set(),
}
# element to (attributes that it must have, others that it may have)
ATTRIBUTES = {
    "scxml": ({"version"}, {"initial", "name", "datamodel", "binding"}),
    "datamodel": (set(), set()),
    "data": ({"id"}, {"src", "expr"}),
    "state": (set(), {"id", "initial"}),
    "final": (set(), {"id"}),
    "transition": (set(), {"event", "cond", "target", "type"}),
    "log": (set(), {"label", "expr"}),
}
# (element, attribute) to what the schema takes as a value, beside names of states and events
VALUES = {
    ("scxml", "version"): re.compile(r"1\.0"),
    ("scxml", "name"): re.compile(r"[\w.:-]+", re.ASCII),
    ("scxml", "datamodel"): re.compile(r"[\w.:-]+", re.ASCII),
    ("scxml", "binding"): re.compile("early|late"),
    ("transition", "type"): re.compile("internal|external"),
}
# elements that stand at most once in another one
ONCE = {
    ("scxml", "datamodel"),
    ("scxml", "script"),
    ("state", "datamodel"),
    ("state", "initial"),
    ("final", "donedata"),
}
NCNAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
EVENT = re.compile(r"[A-Za-z_:\d-]+(\.[A-Za-z_:\d-]+)*(\.\*)?( [A-Za-z_:\d-]+(\.[A-Za-z_:\d-]+)*(\.\*)?)*")
CONDITION = re.compile(r"!?[a-z][a-z0-9_]*( && !?[a-z][a-z0-9_]*)*")


@dataclass(frozen=True, slots=True)
class Transition:
    """One transition as an interpreter takes it; names are identifiers, but for the effects."""

    source: str
    event: str
    wants: tuple[tuple[str, bool], ...]
    target: str
    effects: tuple[str, ...]


def read_scxml(text: str) -> tuple[str, dict[str, str], list[Transition]]:
    """The initial state, each state with its kind, and the transitions in document order.

    Raises:
        ValueError: the document breaks a rule.
    """
    root = ET.fromstring(text)  # noqa: S314 - written by us a moment ago
    if _name(root) != "scxml" or root.get("version") != "1.0":
        raise ValueError(root.attrib)
    _check(root)
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    if len(set(ids)) != len(ids):
        raise ValueError(ids)
    kinds = {element.attrib["id"]: _name(element) for element in root if _name(element) in {"state", "final"}}
    variables = {element.attrib["id"] for element in root.iter() if _name(element) == "data"}
    transitions = [_transition(state, element) for state in root for element in state if _name(element) == "transition"]
    for one in transitions:
        if one.target not in kinds or not {name for name, _ in one.wants} <= variables:
            raise ValueError(one)
    if root.attrib["initial"] not in kinds:
        raise ValueError(root.attrib)
    return root.attrib["initial"], kinds, transitions


def _check(element: ET.Element) -> None:
    name = _name(element)
    must, may = ATTRIBUTES[name]
    plain = {key for key in element.attrib if not key.startswith(f"{{{QUIESCE_NAMESPACE}}}")}
    if not must <= plain <= must | may:
        raise ValueError((name, plain))
    _check_values(name, element, plain)
    counted = Counter((name, _name(child)) for child in element)
    if any(counted[pair] > 1 for pair in ONCE):
        raise ValueError(counted)
    if (element.text or "").strip() or any((child.tail or "").strip() for child in element):
        raise ValueError(name)
    for child in element:
        if _name(child) not in CHILDREN[name]:
            raise ValueError((name, child.tag))
        _check(child)


def _check_values(name: str, element: ET.Element, plain: set[str]) -> None:
    if any(not NCNAME.fullmatch(element.attrib[key]) for key in plain & {"id", "target", "initial"}):
        raise ValueError(element.attrib)
    if "event" in plain and not EVENT.fullmatch(element.attrib["event"]):
        raise ValueError(element.attrib)
    if any(not VALUES[name, key].fullmatch(element.attrib[key]) for key in plain if (name, key) in VALUES):
        raise ValueError(element.attrib)
    if name == "transition" and not plain & {"event", "cond", "target"}:
        raise ValueError(element.attrib)
    if name == "data" and {"src", "expr"} <= plain:
        raise ValueError(element.attrib)


def _transition(state: ET.Element, element: ET.Element) -> Transition:
    condition = element.get("cond", "")
    if condition and not CONDITION.fullmatch(condition):
        raise ValueError(condition)
    wants = tuple((part.lstrip("!"), not part.startswith("!")) for part in condition.split(" && ") if part)
    effects = tuple(_literal(log.attrib["expr"]) for log in element)
    source = state.attrib["id"]
    return Transition(source, element.attrib["event"], wants, element.get("target", source), effects)


def _literal(text: str) -> str:
    found = re.fullmatch(r"'((?:[^'\\]|\\.)*)'", text)
    if not found:
        raise ValueError(text)
    return re.sub(r"\\(.)", r"\1", found[1])


def _name(element: ET.Element) -> str:
    space, _, name = element.tag.removeprefix("{").rpartition("}")
    if space != SCXML_NAMESPACE:
        raise ValueError(element.tag)
    return name
