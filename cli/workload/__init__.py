"""A small real workload on the kit: a policy with its judge, an agent that runs rollouts of several turns, a tool.

``quiesce serve`` runs one of these servers, ``quiesce demo`` all of them. They are written as any author of a server
would write one, with nothing but the kit's public names.
"""

from __future__ import annotations

from quiesce.cli.workload.course import Course, course
from quiesce.cli.workload.servers import ServerSettings, build_server

__all__ = ["Course", "ServerSettings", "build_server", "course"]
