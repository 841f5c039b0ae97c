"""What training code embeds: the controller, its configuration, its results and its errors.

``Controller`` is the whole of it for most users. ``quiesce.controller.phases`` has a cut's phases one by one.
"""

from __future__ import annotations

from quiesce.controller.aborting import Aborted
from quiesce.controller.api import Controller
from quiesce.controller.blocking import BlockingController
from quiesce.controller.config import Config, load_config, parse_config
from quiesce.controller.contexts import Cut, Restored
from quiesce.controller.errors import (
    ControllerGone,
    CutAborted,
    CutNotOffered,
    DeadlineExceeded,
    HalfRestored,
    InDoubt,
    LeaseLapsed,
    NothingOwed,
    OnCompletedMisused,
    PublishUncertain,
    RequestConflict,
    RestoreFailed,
    RestoreOwed,
    RootHeld,
    StorageFailed,
    Superseded,
    TransactionRunning,
    Unacknowledged,
    UnexpectedFence,
)
from quiesce.controller.last_cut import OnAskedCut
from quiesce.controller.phases import PhasedCut, PhasedRestore
from quiesce.controller.ports import CompletedResult, OnCompleted
from quiesce.controller.results import CutResult, PhaseTiming, RestoreResult, Timings
from quiesce.controller.retention import Pruned
from quiesce.controller.snapshots import SnapshotStore
from quiesce.controller.takeover import Recovered

__all__ = [
    "Aborted",
    "BlockingController",
    "CompletedResult",
    "Config",
    "Controller",
    "ControllerGone",
    "Cut",
    "CutAborted",
    "CutNotOffered",
    "CutResult",
    "DeadlineExceeded",
    "HalfRestored",
    "InDoubt",
    "LeaseLapsed",
    "NothingOwed",
    "OnAskedCut",
    "OnCompleted",
    "OnCompletedMisused",
    "PhaseTiming",
    "PhasedCut",
    "PhasedRestore",
    "Pruned",
    "PublishUncertain",
    "Recovered",
    "RequestConflict",
    "RestoreFailed",
    "RestoreOwed",
    "RestoreResult",
    "Restored",
    "RootHeld",
    "SnapshotStore",
    "StorageFailed",
    "Superseded",
    "Timings",
    "TransactionRunning",
    "Unacknowledged",
    "UnexpectedFence",
    "load_config",
    "parse_config",
]
