"""What a caller wants the manifest to keep, checked before anybody is paused for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue, TypeAdapter, ValidationError

from quiesce.participants.errors import ConfigurationError
from quiesce.participants.manifest_models import Metadata
from quiesce.participants.validation import first_problems

__all__ = ["checked_metadata"]

_METADATA: Final = TypeAdapter(Metadata)


def checked_metadata(metadata: Mapping[str, JsonValue] | None) -> dict[str, JsonValue]:
    """A copy of ``metadata`` that nobody changes any more; an empty object for None.

    Raises:
        ConfigurationError: it is no JSON object, or too large (64 KiB).
    """
    try:
        checked = _METADATA.validate_python(dict(metadata or {}), strict=True)
    except ValidationError as error:
        raise ConfigurationError(f"metadata: {first_problems(error)}") from None
    except (TypeError, ValueError, RecursionError):
        raise ConfigurationError(f"metadata: it must be a JSON object, not a {type(metadata).__name__}") from None
    copy: dict[str, JsonValue] = json.loads(json.dumps(checked))
    return copy
