"""A table of somebody's own, named as ``module:NAME``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from quiesce.diagrams.annotated import annotations_of
from quiesce.diagrams.annotations import Annotations, check_annotations
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.rows import Table

__all__ = ["OwnTable", "TableNotFound", "load_table", "names_a_module"]

_ANNOTATIONS: Final = "_ANNOTATIONS"

# Any: a table that is found while the program runs is over states and events that nobody knows before
OwnTable = tuple[Table[Any, Any], Annotations[Any, Any]]


class TableNotFound(QuiesceError):
    """A name of the form ``module:NAME`` that leads to no table. The text says where it ended."""


def names_a_module(name: str) -> bool:
    """Whether a machine's name is meant as ``module:NAME``; no machine of ours has a colon in its name."""
    return ":" in name


def load_table(name: str) -> OwnTable:
    """The table ``module:NAME``, and ``NAME_ANNOTATIONS`` of the same module, or what the table itself says.

    The module is imported, so its code runs; modules of the working folder are found as well.

    Raises:
        TableNotFound: there is no such module, it cannot be imported, or it has no such table.
        DefinitionError: the annotations name what the table does not have.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise TableNotFound(f"'{name[:120]}' is not of the form module:NAME")
    with _working_folder_on_path():
        try:
            module = import_module(module_name)
        except ModuleNotFoundError as error:
            hint = "is it installed, or in the working folder?" if error.name == module_name else f"{error}"
            raise TableNotFound(f"there is no module '{module_name}': {hint}") from None
        except SystemExit as error:
            ended = f"it ends the program (exit code {error.code}) when it is imported"
            raise TableNotFound(f"'{module_name}' cannot be imported: {ended}") from error
        except Exception as error:
            raise TableNotFound(f"'{module_name}' cannot be imported: {type(error).__name__}: {error}") from error
    found = getattr(module, attribute, None)
    if not isinstance(found, Table):
        raise TableNotFound(f"'{module_name}' has no table '{attribute}'; {_tables_of(vars(module), attribute)}")
    annotations = getattr(module, f"{attribute}{_ANNOTATIONS}", None)
    if annotations is None:
        return found, annotations_of(found)
    if not isinstance(annotations, Annotations):
        raise TableNotFound(f"'{module_name}:{attribute}{_ANNOTATIONS}' is no quiesce.diagrams.Annotations")
    check_annotations(found, annotations)
    return found, annotations


def _tables_of(names: dict[str, object], wanted: str) -> str:
    tables = [name for name, value in names.items() if isinstance(value, Table)]
    if not tables:
        return "it has none at all; a table is a quiesce.fsm.rows.Table at the top level of the module"
    return f"did you mean {' or '.join(get_close_matches(wanted, tables, n=3) or tables[:10])}?"


@contextmanager
def _working_folder_on_path() -> Iterator[None]:
    folder = str(Path.cwd())
    if folder in sys.path or "" in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
