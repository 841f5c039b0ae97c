"""The table of routes in docs/wire.md, made from the routes that run.

``PYTHONPATH=tests python -m support.routes_page`` prints it.
"""

from __future__ import annotations

from quiesce.fsm.vocabulary import Role
from quiesce.participants.dialects.gym_a.routes import PREFIX, ROUTES, Route

_ENVELOPE = {"schema_version", "checkpoint_id", "deadline_ts"}


def routes_table() -> str:
    """Every route with who has it and what it takes beside the three fields that all share, as Markdown."""
    head = "| route | served by | takes besides | under the fence |\n| --- | --- | --- | --- |\n"
    return head + "".join(_row(route) for route in ROUTES)


def _row(route: Route) -> str:
    roles = [role.value for role in Role if role in route.served_by]
    served = "everybody" if len(roles) == len(Role) else ", ".join(roles)
    model = route.request or route.query
    fields = [f"`{name}`" for name in model.model_fields if name not in _ENVELOPE] if model else []
    path = route.path.removeprefix(PREFIX)
    return f"| `{route.method} {path}` | {served} | {', '.join(fields) or '–'} | {'yes' if route.fenced else 'no'} |\n"


if __name__ == "__main__":
    print(routes_table())  # noqa: T201 - what it is for
