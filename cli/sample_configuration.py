"""The text that ``quiesce init`` writes: every setting with what it means, as the configuration's own fields say it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Collection, Iterator
from enum import StrEnum
from pathlib import PurePath
from typing import Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from quiesce.controller.config import Config, DeploymentConfig, ParticipantConfig

__all__ = ["sample_configuration"]

WIDTH: Final = 110

_HEAD: Final = """\
What Quiesce cuts, where the snapshots go, and how long it may take. What is commented out has the value that stands
there, or none. `quiesce discover` asks everybody who is named here and says what is wrong; it pauses nobody.
"""
_EXAMPLES: Final[dict[str, object]] = {
    "straggler_after_s": 60.0,
    "last_cut_signals": ["SIGTERM", "SIGUSR1"],
    "token_variable": "NEMO_GYM_CHECKPOINT_CONTROL_TOKEN",
    "proxy": "http://10.0.0.1:3128",
    "keep_latest_k": 5,
    "policy_base_urls": ["http://127.0.0.1:9000/v1"],
    "gym_head": "http://10.0.0.2:11000",
    "gym_config": "resolved.yaml",
    "upstream": ["http://127.0.0.1:9000/v1"],
    "checkpoint_url": "http://10.0.0.5:8010",
}
"""Values that show how a setting is written which has none by default."""
_ELSEWHERE: Final = frozenset({"root", "deployment", "participants", "name", "url", "role"})
"""Settings that the text shows in use."""
_PARTICIPANTS: Final = (
    ("policy_model", "http://127.0.0.1:8100", "policy"),
    ("judge", "http://127.0.0.1:8101", "auxiliary"),
    ("tools", "http://127.0.0.1:8102", "resources"),
    ("agent", "http://127.0.0.1:8103", "agent"),
)


def sample_configuration() -> str:
    """A configuration that can be read as it stands: four servers on this machine."""
    return "\n".join([*_comment(_HEAD), "", *_root(), *_settings(Config), *_deployment(), *_participant(), ""])


def _root() -> Iterator[str]:
    yield from _comment(f"{_sentence(Config, 'root')} A relative path starts at this file's directory.")
    yield 'root = "checkpoints"'


def _deployment() -> Iterator[str]:
    yield ""
    yield "[deployment.main]"
    yield from _comment(f"{_sentence(DeploymentConfig, 'participants')} `role` is what a server must turn out to be.")
    yield "participants = ["
    for name, url, role in _PARTICIPANTS:
        yield f'  {{ name = "{name}", url = "{url}", role = "{role}" }},'
    yield "]"
    gym = {name for name in DeploymentConfig.model_fields if name.startswith("gym_")}
    yield from _settings(DeploymentConfig, without=gym)
    yield ""
    yield from _comment("Instead of `participants`, one of the two sources in NeMo Gym can be given:")
    yield from _settings(DeploymentConfig, without=set(DeploymentConfig.model_fields) - gym)


def _participant() -> Iterator[str]:
    yield ""
    yield from _comment("Inside the braces of a participant there can also be:")
    for name, field in ParticipantConfig.model_fields.items():
        if name not in _ELSEWHERE:
            yield from _comment(f"  {name} = {_written(name, field)}: {field.description}")


def _settings(model: type[BaseModel], *, without: Collection[str] = ()) -> Iterator[str]:
    for name, field in model.model_fields.items():
        if name not in _ELSEWHERE and name not in without:
            yield ""
            yield from _comment(_sentence(model, name))
            yield f"#{name} = {_written(name, field)}"


def _sentence(model: type[BaseModel], name: str) -> str:
    text = model.model_fields[name].description or name
    return f"{text[:1].upper()}{text[1:]}."


def _written(name: str, field: FieldInfo) -> str:
    """The default as TOML, or an example where there is none."""
    value = _EXAMPLES.get(name, field.default)
    if isinstance(value, StrEnum | PurePath):
        value = str(value)
    return json.dumps(value)  # the same as TOML for text, numbers, truth values and lists of them


def _comment(text: str) -> Iterator[str]:
    for line in textwrap.wrap(text.strip(), WIDTH):
        yield f"# {line}"
