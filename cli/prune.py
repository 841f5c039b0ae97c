"""``quiesce prune``: keep the newest snapshots, remove the older ones and what nobody needs any more."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quiesce.cli.opened import CONFIG_FILE, AsJson, ConfigFile, Root
from quiesce.cli.output import ExitCode, counted, emit_json, fail, tell
from quiesce.cli.running import fail_with, run
from quiesce.controller.config import load_config
from quiesce.controller.housekeeping import prune_root
from quiesce.controller.retention import Pruned
from quiesce.fsm.errors import QuiesceError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("prune")(_prune)


def _prune(
    *,
    keep: Annotated[
        int | None, typer.Option(metavar="K", help="How many snapshots stay (by default keep_latest_k, else all).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")] = False,
    root: Root = None,
    config: ConfigFile = CONFIG_FILE,
    as_json: AsJson = False,
) -> None:
    """Keep the newest K valid snapshots and remove the older ones, with left-overs of cuts that ended. Calls nobody.

    The newest valid snapshot always stays; what is torn or incomplete is never counted and never removed.
    """
    try:
        place, kept = (root.absolute(), None) if root is not None else _configured(config)
    except QuiesceError as error:
        fail_with(error, as_json=as_json)
    pruned = run(
        lambda: prune_root(place, keep=kept if keep is None else keep, dry_run=dry_run),
        as_json=as_json,
        when_ended="what was not removed yet is removed by the next `quiesce prune`",
    )
    if not as_json:
        _show(pruned)
    if pruned.failed:
        listed = "\n".join(f"  {number}. {reason}" for number, reason in enumerate(pruned.failed.values(), start=1))
        fail(
            f"not everything could be removed; the next prune tries again:\n{listed}",
            ExitCode.FAILED,
            as_json=as_json,
            type="Incomplete",
            **pruned.to_json(),
        )
    if as_json:
        emit_json({"ok": True, **pruned.to_json()})


def _configured(config: Path) -> tuple[Path, int | None]:
    settings = load_config(config)
    return settings.root, settings.keep_latest_k


def _show(pruned: Pruned) -> None:
    does = "would remove" if pruned.dry_run else "removed"
    left = {name for name in (*pruned.removed, *pruned.swept) if _has_remains(name, pruned)}
    for name in (*pruned.removed, *pruned.swept):
        tell(f"took {name} out of its place; not all of it could be removed" if name in left else f"{does} {name}")
    for name, reason in pruned.ignored.items():
        tell(f"left {name}, which is {reason}")
    stay = f"{counted(len(pruned.kept), 'snapshot')} stay{'s' if len(pruned.kept) == 1 else ''}"
    removed, swept = (sum(name not in left for name in names) for names in (pruned.removed, pruned.swept))
    tell(f"{stay}; {does} {removed}, and {counted(swept, 'left-over')}")


def _has_remains(name: str, pruned: Pruned) -> bool:
    """Whether it was renamed away, so that it is gone from its place, and could not be removed there."""
    aside = f".quiesce/trash/{name.rpartition('/')[2]}."
    return any(failed.startswith(aside) and failed.removeprefix(aside).isdecimal() for failed in pruned.failed)
