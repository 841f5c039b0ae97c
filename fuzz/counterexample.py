"""A counterexample as a file: what was explored, what is violated, and the actions that lead there.

The file is strict: unknown fields, another version of the tables and an edit by hand are refused. Its schema is
``docs/schemas/counterexample-1.schema.json``. Actions are named as the explorer names them; ``changes`` are rows that
were taken for others (planted bugs, what-ifs), and are part of what is replayed.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from quiesce.fsm.engine import Engine, TableEngine
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.explore import Kind, Verdict
from quiesce.fsm.explore_changes import ChangedEngine, RowChange, tables_digest
from quiesce.fsm.explore_controller import ControllerAutomaton
from quiesce.fsm.explore_model import TIMES_MAX, Setup, System
from quiesce.fsm.explore_participant import SiteAutomaton
from quiesce.fsm.explore_properties import ALWAYS, SOMETIMES
from quiesce.fsm.explore_site import Fault
from quiesce.fsm.tables.fence import FENCE, FenceVariant
from quiesce.fsm.tables.phases import DrainMode
from quiesce.fsm.transaction import MemberSpec, Plan
from quiesce.fsm.vocabulary import ParticipantKey, Phase, Role
from quiesce.fuzz.errors import ReplayInvalid
from quiesce.fuzz.json_place import line_of
from quiesce.participants.validation import Listed

__all__ = [
    "KIND",
    "SCHEMA_VERSION",
    "Change",
    "Claimed",
    "Counterexample",
    "Explored",
    "Taking",
    "counterexample_schema",
    "counterexample_text",
    "parse_counterexample",
]

SCHEMA_VERSION: Final = 1
KIND: Final = "quiesce.counterexample"
TEXT_BYTES_MAX: Final = 4 * 1024 * 1024
ACTIONS_MAX: Final = 10_000
MEMBERS_MAX: Final = 1_000
_WRITE_ANEW: Final = "write it anew with 'quiesce check --counterexample-dir'"
_MEANINGS: Final = {claim.name: claim.meaning for claim in (*ALWAYS, *SOMETIMES)}

_Words = Annotated[str, Field(min_length=1, max_length=500)]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,89}$")]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Taking(_Strict):
    """One participant: what it is, which fence it has, and what it takes part in."""

    deployment: _Name
    name: _Name
    role: Role
    fence: FenceVariant
    phases: Annotated[tuple[Phase, ...], Field(max_length=len(Phase))]
    refuses_idle_resume: bool = False
    exports_elsewhere: bool = False
    keeps_results: bool = False
    restarts: bool = False

    @classmethod
    def of(cls, site: SiteAutomaton) -> Self:
        """A participant as it is explored."""
        spec = site.spec
        return cls(
            deployment=spec.key.deployment,
            name=spec.key.name,
            role=spec.role,
            fence=site.variant,
            phases=tuple(phase for phase in Phase if phase in spec.phases),
            refuses_idle_resume=spec.refuses_idle_resume,
            exports_elsewhere=spec.exports_elsewhere,
            keeps_results=site.keeps_results,
            restarts=site.restarts,
        )

    def spec(self) -> MemberSpec:
        """What the core knows of it."""
        key = ParticipantKey(self.deployment, self.name)
        return MemberSpec(key, self.role, frozenset(self.phases), self.refuses_idle_resume, self.exports_elsewhere)


class Explored(_Strict):
    """The set-up: the plan of the transaction, its participants, and how often each class of faults may strike."""

    name: _Words
    is_restore: bool
    drain: DrainMode
    watches_stragglers: bool
    restarts_stragglers: bool
    fresh_processes: bool
    controller_dies: bool
    participants: Annotated[tuple[Taking, ...], Field(min_length=1, max_length=16)]
    faults: dict[str, Annotated[int, Field(ge=0, le=TIMES_MAX)]]

    @classmethod
    def of(cls, setup: Setup) -> Self:
        """A set-up as it is explored."""
        plan = setup.controller.plan
        return cls(
            name=setup.name,
            is_restore=plan.is_restore,
            drain=plan.drain,
            watches_stragglers=plan.watches_stragglers,
            restarts_stragglers=plan.restarts_stragglers,
            fresh_processes=setup.fresh_processes,
            controller_dies=setup.controller.dies,
            participants=tuple(Taking.of(site) for site in setup.sites),
            faults={fault.name.lower(): setup.budgets[fault] for fault in Fault if setup.budgets.get(fault)},
        )

    def plan(self) -> Plan:
        """What the transaction is to do, over whom."""
        return Plan(
            tuple(taking.spec() for taking in self.participants),
            is_restore=self.is_restore,
            drain=self.drain,
            watches_stragglers=self.watches_stragglers,
            restarts_stragglers=self.restarts_stragglers,
        )


class Claimed(_Strict):
    """The property: what it claims of which states, and what it means."""

    kind: Kind
    name: _Words
    meaning: _Words

    def __str__(self) -> str:
        """The property in one line; one whose name says what it means says it once."""
        return f"{self.kind.value} {self.name}" + ("" if self.meaning == self.name else f": {self.meaning}")


class Change(_Strict):
    """A row of a table that is taken for another one."""

    table: _Words
    row: _Words
    target: _Words
    effects: Listed[_Words]

    def of_tables(self) -> RowChange:
        """The change itself.

        Raises:
            DefinitionError: there is no such row.
        """
        return RowChange(self.table, self.row, self.target, self.effects)


class Counterexample(_Strict):
    """One counterexample, or, for a *sometimes* property, one witness."""

    schema_version: Annotated[int, Field(ge=1, le=1)]
    kind: Literal["quiesce.counterexample"]
    quiesce_version: _Words
    tables: _Digest
    """Digest of every table, joint rule and wave that it was found with."""
    setup: Explored
    claim: Claimed
    changes: Annotated[tuple[Change, ...], Field(max_length=100)]
    actions: Annotated[tuple[_Words, ...], Field(max_length=ACTIONS_MAX, fail_fast=True)]

    @classmethod
    def of(cls, setup: Setup, verdict: Verdict, changes: tuple[RowChange, ...] = ()) -> Self:
        """What a search found. ``changes`` are those that it was made with.

        Raises:
            ValueError: the verdict has no trace.
        """
        if verdict.trace is None:
            raise ValueError(f"'{verdict}' has no trace, so there is nothing to replay")
        meaning = _MEANINGS.get(verdict.name, verdict.name)
        return cls(
            schema_version=SCHEMA_VERSION,
            kind=KIND,
            quiesce_version=_installed_version(),
            tables=tables_digest(),
            setup=Explored.of(setup),
            claim=Claimed(kind=verdict.kind, name=verdict.name, meaning=meaning),
            changes=tuple(
                Change(table=one.table, row=one.row, target=one.target, effects=one.effects) for one in changes
            ),
            actions=verdict.trace,
        )

    @property
    def is_of_these_tables(self) -> bool:
        """Whether the tables are still those that it was found with."""
        return self.tables == tables_digest()

    @property
    def is_witness(self) -> bool:
        """Whether it shows something that should be reached, not something that must not be."""
        return self.claim.kind is Kind.SOMETIMES

    def engine(self, inner: Engine | None = None) -> Engine:
        """``inner`` (the table engine by default) with the changes."""
        inner = TableEngine() if inner is None else inner
        changes = tuple(change.of_tables() for change in self.changes)
        return ChangedEngine(changes, inner) if changes else inner

    def model(self, engine: Engine | None = None) -> System:
        """The composed system in which the actions happen, on an engine.

        Raises:
            DefinitionError: a participant or a change names what there is not.
        """
        chosen = self.engine(engine)
        setup = Setup(
            name=self.setup.name,
            controller=ControllerAutomaton(self.setup.plan(), chosen, self.setup.controller_dies),
            sites=tuple(
                SiteAutomaton(taking.spec(), taking.fence, taking.keeps_results, taking.restarts, chosen)
                for taking in self.setup.participants
            ),
            budgets={Fault[name.upper()]: times for name, times in self.setup.faults.items()},
            expects=(self.claim.name,) if self.is_witness else (),
            fresh_processes=self.setup.fresh_processes,
        )
        return System(setup)


def counterexample_schema() -> dict[str, object]:
    """The JSON Schema of the file."""
    schema = _File.model_json_schema()
    schema["title"] = "Counterexample"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def counterexample_text(found: Counterexample) -> str:
    """The file, ending in a line break."""
    content = found.model_dump(mode="json")
    return json.dumps({**content, "digest": _digest(content)}, indent=2, ensure_ascii=False) + "\n"


def parse_counterexample(text: str, source: str = "counterexample") -> Counterexample:
    """Read the file. It may have been found with other tables (``is_of_these_tables``), if those have what it names.

    Raises:
        ReplayInvalid: it is torn, of another version, or edited, or names what there is not any more; the text names
            the line and what to do.
    """
    if len(text.encode()) > TEXT_BYTES_MAX:
        raise ReplayInvalid(source, f"it is longer than {TEXT_BYTES_MAX} bytes; no counterexample is")
    content = _object(text, source)
    _check_version(content, text, source)
    try:
        found = _File.model_validate_json(text)
    except ValidationError as error:
        raise ReplayInvalid(source, _first_problem(error, text)) from None
    _check_names(found, text, source)
    if found.digest != _digest({name: value for name, value in content.items() if name != "digest"}):
        where = f"line {line_of(text, ['digest'])}: the digest is that of another content"
        raise ReplayInvalid(source, f"{where}: the file was edited after it was written; {_WRITE_ANEW}")
    return Counterexample.model_validate(found.model_dump(exclude={"digest"}))


class _File(Counterexample):
    digest: _Digest
    """SHA-256 of the other fields as canonical JSON."""


def _object(text: str, source: str) -> dict[str, object]:
    try:
        content = json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise ReplayInvalid(source, f"line {error.lineno}: no JSON: {error.msg}; {_WRITE_ANEW}") from None
    except (ValueError, RecursionError) as error:
        raise ReplayInvalid(source, f"no JSON of ours: {error}; {_WRITE_ANEW}") from None
    if not isinstance(content, dict):
        raise ReplayInvalid(source, "line 1: it is no JSON object, so it is no replay file")
    return content


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(pairs) > MEMBERS_MAX:
        raise ValueError(f"an object has {len(pairs)} fields; at most {MEMBERS_MAX} are read")
    if twice := sorted(name for name, times in Counter(name for name, _ in pairs).items() if times > 1):
        raise ValueError(f"a field stands twice in one object: {', '.join(twice)[:200]}")
    return dict(pairs)


def _check_version(content: dict[str, object], text: str, source: str) -> None:
    found = content.get("schema_version")
    if type(found) is int and found != SCHEMA_VERSION:
        where = f"line {line_of(text, ['schema_version'])}: it has schema version {found}, this Quiesce reads "
        raise ReplayInvalid(source, f"{where}{SCHEMA_VERSION}; use the Quiesce that wrote it, or {_WRITE_ANEW}")


def _first_problem(error: ValidationError, text: str) -> str:
    first, *others = error.errors(include_url=False, include_input=False)
    path = first["loc"]
    field = ".".join(str(part) for part in path) or "the file"
    more = f" (and {len(others)} more)" if others else ""
    return f"line {line_of(text, path)}: {field}: {first['msg']}{more}; {_WRITE_ANEW}"


def _check_names(found: Counterexample, text: str, source: str) -> None:
    """What only the tables know: fences, faults, properties and rows."""
    faults = {fault.name.lower() for fault in Fault}
    claims = {Kind.ALWAYS: ALWAYS, Kind.SOMETIMES: SOMETIMES}.get(found.claim.kind)
    problems: list[tuple[tuple[str | int, ...], str]] = [
        (("setup", "faults", name), f"there is no class of faults '{name[:80]}'; there are {', '.join(sorted(faults))}")
        for name in found.setup.faults
        if name not in faults
    ]
    problems += [
        (("setup", "participants", place, "fence"), f"no fence '{taking.fence}' exists for role '{taking.role}'")
        for place, taking in enumerate(found.setup.participants)
        if (taking.fence, taking.role) not in FENCE
    ]
    if claims is not None and found.claim.name not in {claim.name for claim in claims}:
        problems.append((("claim", "name"), f"no property is called '{found.claim.name[:80]}'"))
    for place, change in enumerate(found.changes):
        try:
            change.of_tables()
        except QuiesceError as error:
            problems.append((("changes", place), str(error)))
    try:
        found.setup.plan()
    except QuiesceError as error:
        problems.append((("setup", "participants"), str(error)))
    since = "" if found.is_of_these_tables else f" (it was found with other tables, Quiesce {found.quiesce_version})"
    for path, reason in problems:
        raise ReplayInvalid(source, f"line {line_of(text, path)}: {reason}{since}; {_WRITE_ANEW}")


def _digest(content: dict[str, object]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _installed_version() -> str:
    try:
        return version("quiesce")
    except PackageNotFoundError:
        return "not installed"
