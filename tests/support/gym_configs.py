"""Small resolved configurations of NeMo Gym (``tests/data/gym``), and a head server that serves one.

Each of them holds values that begin with ``canary``, in the places of keys and of what must not be repeated.
"""

from __future__ import annotations

import json
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from support.house import ROOT

from quiesce.participants.gym_config import GymConfiguration, read_gym_configuration

FOLDER = Path(__file__).parents[1] / "data" / "gym"
REAL = ROOT.parent / "shared" / "gym-configs"
"""Real resolved configurations, which are others' and lie beside the project where it is developed and in CI."""
CANARY = "canary"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def text_of(name: str) -> str:
    """The text of one of ours."""
    return (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")


def configuration_of(name: str) -> GymConfiguration:
    """What is read out of one of ours."""
    return read_gym_configuration(text_of(name), source=f"{name}.yaml")


class GymHead:
    """A head server: ``GET /global_config_dict_yaml`` answers the YAML as one JSON string. Counts what it was asked."""

    def __init__(self, text: str) -> None:
        self.answer = Response(json.dumps(text, ensure_ascii=False), media_type="application/json")
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.app = Starlette(routes=[Route("/{path:path}", self._answer, methods=["GET", "POST"])])

    async def _answer(self, request: Request) -> Response:
        self.requests.append((request.method, request.url.path, dict(request.headers)))
        return self.answer if request.url.path == "/global_config_dict_yaml" else Response(status_code=404)
