"""Which call of our client a recorded request is: the spec that the controller would have written."""

from __future__ import annotations

from support.recordings import NOW, Exchange

from quiesce.fsm.vocabulary import Role, Verb
from quiesce.participants.dialects.base import CallSpec
from quiesce.participants.dialects.gym_a.routes import ROUTES, Route
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import ArtefactReference, CompletionReceipt

ROLES = {"policy": Role.POLICY, "coordinator": Role.POLICY, "aux": Role.POLICY, "agent": Role.AGENT}
OWN_NAMES = {"policy": "policy", "coordinator": "policy", "aux": "judge", "agent": "agent", "resources": "resources"}

UNPROCESSABLE = 422
STATUS_ROUTES = {"agent_status", "resources_status"}


def route_of(exchange: Exchange) -> Route:
    """The route that was asked; auxiliary models were asked as if they were policies, to see them refuse."""
    return next(route for route in ROUTES if (route.method, route.path) == (exchange.method, exchange.path))


def is_progress(exchange: Exchange) -> bool:
    """Whether it is a status of an agent or resource server, which only reads."""
    return route_of(exchange).name in STATUS_ROUTES


def spec_of(exchange: Exchange, checkpoint_id: str | None = None) -> CallSpec:
    """The spec whose call the exchange's request is; ``checkpoint_id`` replaces one that we would never send."""
    sent = exchange.json if isinstance(exchange.json, dict) else exchange.query or {}
    attempt = AttemptId(sent["rollout_id"], sent["attempt_index"]) if "attempt_index" in sent else None
    route = route_of(exchange)
    single = route.name == "acknowledge"
    return CallSpec(
        verb=Verb.ACKNOWLEDGE if single else route.verb or Verb.AWAIT_CUT,
        role=ROLES.get(exchange.component, Role.RESOURCES),
        coordinator=exchange.component == "coordinator",
        checkpoint_id=sent.get("checkpoint_id", "") if checkpoint_id is None else checkpoint_id,
        deadline_ts=_instant(sent.get("deadline_ts")),
        checkpoint_dir=sent.get("checkpoint_dir"),
        continuation_indexes=tuple(_index(index) for index in sent.get("continuation_indexes", [])),
        receipts=(CompletionReceipt(**sent),) if single else (),
        acknowledge_singly=single,
        attempt=attempt,
        wait_s=float(sent.get("timeout_s", 0)),
        participant_name=OWN_NAMES[exchange.component],
    )


def _instant(value: object) -> float:
    return float(value) if isinstance(value, int | float) else NOW


def _index(sent: dict[str, object]) -> ArtefactReference:
    return ArtefactReference(
        str(sent["relative_path"]), str(sent["sha256"]), int(str(sent["records"])), int(str(sent["bytes"]))
    )


def transaction_ids(exchanges: list[Exchange]) -> list[str]:
    """For each exchange the id of the transaction that its component took part in at that moment.

    It is the id that the component was last asked with, unless it answered that another one holds it.
    """
    latest: dict[str, str] = {}
    ids = []
    for exchange in exchanges:
        sent = exchange.json if isinstance(exchange.json, dict) else exchange.query or {}
        asked = sent.get("checkpoint_id")
        code = exchange.reply.get("error", {}).get("code") if isinstance(exchange.reply, dict) else None
        if isinstance(asked, str) and exchange.status != UNPROCESSABLE and code != "checkpoint_conflict":
            latest[exchange.component] = asked
        ids.append(latest.get(exchange.component, "ck-1"))
    return ids
