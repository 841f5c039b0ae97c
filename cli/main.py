"""The ``quiesce`` command. Each command is a module of its own, and only the one that is asked for is imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Final, TextIO, cast

import typer
from typer.core import TyperGroup
from typer.main import get_command

from quiesce.cli.logs import LogFormat, LogLevel, configure_logs
from quiesce.cli.output import ExitCode, emit_json
from quiesce.cli.standard_output import READER_GONE, OutputLost, TellingOutput, give_up_output

__all__ = ["COMMANDS", "app", "main"]

COMMANDS: Final = (
    "demo",
    "serve",
    "init",
    "discover",
    "checkpoint",
    "restore",
    "recover",
    "settle",
    "abort",
    "list",
    "verify",
    "prune",
    "diagram",
    "trace",
    "check",
    "fuzz",
    "replay",
)
"""Every command, in the order of the help text; each is ``register(app)`` of ``quiesce.cli.<command>``."""

_ACTING: Final = frozenset({"checkpoint", "restore", "recover", "settle", "abort", "prune"})
"""Commands whose doing outlasts them, also where nobody could be told of it."""


class _Commands(TyperGroup):
    """Imports a command when it is asked for: most of them need half of Quiesce, and none needs all of it."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - the type has moved between versions
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002 - as above
        if cmd_name not in COMMANDS:
            return None
        alone = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None, add_completion=False)
        import_module(f"quiesce.cli.{cmd_name}").register(alone)
        return get_command(alone)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as above
        """Run what is named; an option's value that is refused is told without the words of the library below."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise


app = typer.Typer(
    name="quiesce",
    cls=_Commands,
    help="One consistent checkpoint over every server that an RL job's rollouts are spread across.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(asked: bool) -> None:  # noqa: FBT001 - typer calls it so
    if asked:
        try:
            typer.echo(f"quiesce {version('quiesce')}")
        except PackageNotFoundError:
            typer.echo("quiesce (not installed)")
        raise typer.Exit


@app.callback()
def _options(
    *,
    log_level: Annotated[LogLevel, typer.Option(help="The least severe log entry on standard error.")] = (
        LogLevel.WARNING
    ),
    log_format: Annotated[LogFormat, typer.Option(help="auto: text on a terminal, else JSON.")] = LogFormat.AUTO,
    version: Annotated[  # noqa: ARG001 - its callback has done everything
        bool, typer.Option("--version", help="Show the version.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    configure_logs(log_level, log_format)


def main() -> None:
    """Run the command that the arguments name."""
    sys.stdout = cast("TextIO", TellingOutput(sys.stdout))
    try:
        app()
    except OutputLost as lost:
        give_up_output()
        typer.echo(f"quiesce: {lost}{_what_stands(sys.argv[1:])}", err=True)
        sys.exit(ExitCode.FAILED)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            give_up_output()
            sys.exit(READER_GONE)
        # an error of usage is met before any command could have told it in JSON
        usage = getattr(end.__context__, "format_message", None)
        if usage is not None and "--json" in sys.argv[1:]:
            emit_json({"ok": False, "error": usage(), "type": "UsageError"})
        raise


def _what_stands(arguments: Sequence[str]) -> str:
    """What to look at where a command has acted and could not tell of it; nothing for one that only tells."""
    command = next((word for word in arguments if word in COMMANDS), "")
    return "; what was done before stands; `quiesce list` and `quiesce discover` show it" if command in _ACTING else ""


if __name__ == "__main__":
    main()
