"""What is to be cut, where the snapshots go and how long it may take: the configuration, and reading it from TOML.

Writing the file is the opt-in: a configuration is enabled unless it says ``enabled = false``, and then a cut makes no
control call, yields its directory and publishes the trainer's part alone. ``QUIESCE_<KEY>`` variables override the
file's top-level settings. Every problem is reported at once, with file, key and what to do
(:class:`~quiesce.controller.configuration_errors.ConfigurationProblems`).
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    field_validator,
    model_validator,
)

from quiesce.controller.config_environment import Overrides, read_overrides
from quiesce.controller.configuration_errors import ConfigurationProblems, describe_problems
from quiesce.fsm.tables.phases import DrainMode
from quiesce.fsm.vocabulary import Role
from quiesce.participants.errors import ConfigurationError, InvalidIdentity
from quiesce.participants.gym_config_addresses import is_wildcard
from quiesce.participants.identity import check_identity, check_label
from quiesce.participants.urls import check_base_url

__all__ = [
    "Config",
    "DeploymentConfig",
    "ParticipantConfig",
    "StragglerPolicy",
    "load_config",
    "parse_config",
]

FILE_BYTES_MAX: Final = 4 << 20
PARTICIPANTS_MAX: Final = 20_000
KEPT_MAX: Final = 1_000_000
TIMEOUT_S_MAX: Final = 7 * 24 * 3600.0

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Text = Annotated[str, Strict()]
Flag = Annotated[bool, Strict()]
Seconds = Annotated[float, Strict(), Field(gt=0, le=TIMEOUT_S_MAX, allow_inf_nan=False)]
BaseUrl = Annotated[str, Strict(), AfterValidator(check_base_url)]


class StragglerPolicy(StrEnum):
    """What happens to a rollout that does not reach a boundary in time."""

    WAIT = "wait"
    RESTART = "restart"


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class ParticipantConfig(_Settings):
    """One server that takes part in the cut or must be known to stay out of it."""

    name: Text = Field(description="the routing name by which reports and the manifest call this server")
    url: BaseUrl = Field(description="the base URL of its control routes, for example http://10.0.0.5:8000")
    role: Role | None = Field(default=None, description="what the server must turn out to be")
    upstream: tuple[BaseUrl, ...] = Field(
        default=(), description="the model endpoint that a model server forwards to, or a list of them"
    )
    checkpoint_url: BaseUrl | None = Field(
        default=None, description="the base URL of commit and restore, where another process serves them"
    )

    @field_validator("upstream", mode="before")
    @classmethod
    def _one_or_several(cls, upstream: object) -> object:
        return (upstream,) if isinstance(upstream, str) else upstream

    @field_validator("name")
    @classmethod
    def _usable_name(cls, name: str) -> str:
        return _identity(name)


class DeploymentConfig(_Settings):
    """One deployment: the servers that work for one trainer's policy."""

    participants: tuple[ParticipantConfig, ...] = Field(
        default=(), description="a list of { name = ..., url = ... }, one for each server of the deployment"
    )
    policy_base_urls: tuple[BaseUrl, ...] = Field(
        default=(), description="the trainer's own policy endpoints; a policy model must have one of them as upstream"
    )
    gym_head: BaseUrl | None = Field(
        default=None, description="the NeMo Gym head server to ask for the servers, for example http://10.0.0.2:11000"
    )
    gym_config: Path | None = Field(
        default=None, description="a file with a resolved NeMo Gym configuration, which names the servers"
    )

    @field_validator("participants")
    @classmethod
    def _bounded(cls, participants: tuple[ParticipantConfig, ...]) -> tuple[ParticipantConfig, ...]:
        if not participants:
            raise ValueError("names no server; a cut over nobody proves nothing")
        if len(participants) > PARTICIPANTS_MAX:
            raise ValueError(f"names {len(participants)} servers; at most {PARTICIPANTS_MAX} are supported")
        return participants

    @field_validator("gym_head")
    @classmethod
    def _to_connect_to(cls, url: str | None) -> str | None:
        if url is not None and is_wildcard(urlsplit(url).hostname or ""):
            raise ValueError("is an address that a server binds; write the one at which the head server is reached")
        return url

    @field_validator("gym_config")
    @classmethod
    def _usable_path(cls, path: Path | None) -> Path | None:
        if path is not None and (path == Path() or not str(path).isprintable()):
            raise ValueError("is empty or holds a character that cannot be printed")
        if path is not None and str(path).startswith("~"):
            raise ValueError("'~' is not expanded; write the path out")
        return path

    @model_validator(mode="after")
    def _one_source(self) -> DeploymentConfig:
        given = [key for key in ("participants", "gym_config", "gym_head") if getattr(self, key)]
        if not given:
            raise ValueError("names no server; give one of participants = [...], gym_config = ..., gym_head = ...")
        if len(given) > 1:
            raise ValueError(f"names its servers in {len(given)} ways ({', '.join(given)}); keep one of them")
        return self


class Config(_Settings):
    """Everything that a controller must be told. All times are seconds on the monotonic clock.

    ``root`` must be visible to the controller, to every participant and to the next controller, under the same
    absolute path.
    """

    root: Path = Field(description="the directory for snapshots and journals, on a file system that everybody sees")
    enabled: Flag = Field(
        default=True, description="whether control calls are made; without, a cut saves the trainer's part alone"
    )
    reach_timeout_s: Seconds = Field(default=120.0, description="the time to get everyone quiesced")
    hold_timeout_s: Seconds = Field(default=600.0, description="the time to keep them so")
    control_timeout_s: Seconds = Field(default=60.0, description="the time for one short call, such as capabilities")
    release_timeout_s: Seconds = Field(
        default=60.0,
        description="the time to get a resume through to one participant, more while an earlier call may run there",
    )
    drain: DrainMode = Field(default=DrainMode.OVERLAPPED, description="when agents are asked to park")
    straggler_policy: StragglerPolicy = Field(default=StragglerPolicy.WAIT, description="what to do with a straggler")
    straggler_after_s: Seconds | None = Field(default=None, description="from when on an execution is a straggler")
    last_cut_signals: tuple[Literal["SIGTERM", "SIGUSR1"], ...] = Field(
        default=(), description="signals that announce the end of this job and set off a last cut first"
    )
    grace_s: Seconds = Field(
        default=30.0, description="the time between such a signal and the moment at which the job is killed"
    )
    last_cut_label: Text = Field(default="last-cut", description="the label of a cut that a signal set off")
    token_variable: Text | None = Field(
        default=None, description="the name of the environment variable that holds the bearer token, never the token"
    )
    proxy: BaseUrl | None = Field(
        default=None, description="the proxy for control calls; the environment's proxy variables are not looked at"
    )
    keep_latest_k: Annotated[int, Strict(), Field(ge=1, le=KEPT_MAX)] | None = Field(
        default=None, description="after a cut, keep only so many of the newest snapshots; all of them where not set"
    )
    hash_trainer_files: Flag = Field(default=False, description="also record digests of the trainer's own files")
    deployment: Mapping[str, DeploymentConfig] = Field(
        default_factory=dict, description="a section [deployment.NAME] with the servers to cut"
    )

    @field_validator("root")
    @classmethod
    def _usable_root(cls, root: Path) -> Path:
        text = str(root)
        if not text.isprintable():
            raise ValueError("holds a character that cannot be printed")
        if text.startswith("~"):
            raise ValueError("'~' is not expanded, since participants may run as another user; write the path out")
        if not root.is_absolute():
            raise ValueError("must be an absolute path, since participants on other machines get it as it stands")
        return root

    @field_validator("last_cut_label")
    @classmethod
    def _usable_label(cls, label: str) -> str:
        try:
            return check_label(label)
        except InvalidIdentity as error:
            raise ValueError(str(error)) from None

    @field_validator("token_variable")
    @classmethod
    def _variable_name(cls, name: str | None) -> str | None:
        # the refused value may be the secret itself, so it is never repeated
        if name is not None and not _VARIABLE.fullmatch(name):
            raise ValueError("must be the name of an environment variable, not the token itself")
        return name

    @field_validator("deployment")
    @classmethod
    def _usable_deployments(cls, deployments: Mapping[str, DeploymentConfig]) -> Mapping[str, DeploymentConfig]:
        for name in deployments:
            _identity(name)
        if len({name.casefold() for name in deployments}) < len(deployments):
            raise ValueError("two deployments differ in case only; their folders could collide, so rename one")
        return deployments

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        if self.enabled and not self.deployment:
            raise ValueError("no servers are named; add a section [deployment.main], or set enabled = false")
        if self.straggler_policy is StragglerPolicy.RESTART and self.straggler_after_s is None:
            raise ValueError("straggler_policy = 'restart' needs straggler_after_s: when an execution is a straggler")
        if self.straggler_after_s is not None and self.straggler_after_s >= self.reach_timeout_s:
            raise ValueError("straggler_after_s must be shorter than reach_timeout_s, else it can never apply")
        return self


def load_config(path: Path | str, *, environment: Mapping[str, str] | None = None) -> Config:
    """Read a configuration file. A relative path in it (``root``, ``gym_config``) starts at the file's directory.

    Args:
        path: the TOML file.
        environment: variables that may override it, the process's own by default.

    Raises:
        ConfigurationError: the file cannot be read, or is no TOML, or something in it cannot be used.
    """
    source = Path(path)
    try:
        with source.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(
            f"{source}: cannot be read: {error.strerror}; name another file with --config"
        ) from error
    if len(content) > FILE_BYTES_MAX:
        raise ConfigurationError(f"{source}: is larger than {FILE_BYTES_MAX >> 20} MiB; is it the right file?")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{source}: is not UTF-8 text (at byte {error.start}); save it as UTF-8") from None
    return parse_config(text, source=str(source), directory=source.parent, environment=environment)


def parse_config(text: str, *, source: str, directory: Path, environment: Mapping[str, str] | None = None) -> Config:
    """Read a configuration from TOML text; ``source`` names it in errors, relative paths start at ``directory``.

    Raises:
        ConfigurationError: as load_config.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{source}: is not valid TOML: {error}") from None
    _make_absolute(document, directory)
    overrides = read_overrides(os.environ if environment is None else environment, exempt=_token_names(document))
    return _validated({**document, **overrides.values}, source, overrides)


def _identity(name: str) -> str:
    try:
        return check_identity(name, field="the name")
    except InvalidIdentity as error:
        raise ValueError(str(error).removeprefix("the name: ")) from None


def _validated(document: Mapping[str, object], source: str, overrides: Overrides) -> Config:
    problems = list(overrides.problems)
    try:
        config = Config.model_validate(document)
    except ValidationError as error:
        models: dict[int, type[BaseModel]] = {1: Config, 3: DeploymentConfig, 5: ParticipantConfig}
        problems += describe_problems(error, source=source, models=models, origins=overrides.origins)
    else:
        if not problems:
            return config
    raise ConfigurationProblems(problems) from None


def _make_absolute(document: dict[str, object], directory: Path) -> None:
    """Paths in a file are relative to its directory."""
    deployments = document.get("deployment")
    tables = list(deployments.values()) if isinstance(deployments, dict) else []
    for table, key in [(document, "root"), *((table, "gym_config") for table in tables if isinstance(table, dict))]:
        path = table.get(key)
        if isinstance(path, str) and path and not path.startswith("~"):
            table[key] = os.path.normpath(directory.absolute() / path)


def _token_names(document: Mapping[str, object]) -> tuple[str, ...]:
    name = document.get("token_variable")
    return (name,) if isinstance(name, str) else ()
