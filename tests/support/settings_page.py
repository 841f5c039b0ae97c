"""The tables of the page on the configuration, made from the settings themselves.

``PYTHONPATH=tests python -m support.settings_page`` prints them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from quiesce.controller.config import Config, DeploymentConfig, ParticipantConfig
from quiesce.controller.config_environment import SETTINGS

_TABLES: dict[str, type[BaseModel]] = {
    "At the top": Config,
    "In `[deployment.NAME]`": DeploymentConfig,
    "For each participant": ParticipantConfig,
}


def settings_tables() -> str:
    """Every setting, its default and what it is, as Markdown."""
    return "\n".join(f"## {title}\n\n{''.join(_table(model))}" for title, model in _TABLES.items())


def _table(model: type[BaseModel]) -> Iterator[str]:
    yield "| setting | by default | is |\n| --- | --- | --- |\n"
    for name, field in model.model_fields.items():
        yield f"| `{name}` | {_default(field)} | {field.description} |\n"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    if field.default_factory is not None or field.default in (None, ()):
        return "–"
    value = field.default.value if isinstance(field.default, Enum) else field.default
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def overridable() -> tuple[str, ...]:
    """The settings that have a variable of their own."""
    return tuple(SETTINGS)


if __name__ == "__main__":
    print(settings_tables())  # noqa: T201 - what it is for
