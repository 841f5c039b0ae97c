"""A library is quiet until somebody says where its entries go, and says everything then."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import capture_logs

from quiesce.transport.logs import log_named

LOG = log_named("quiesce.test").bind(wire_id="step-1-0123abcd")


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    """As a program that never heard of structlog finds it."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def test_nothing_is_printed_by_default(capfd: pytest.CaptureFixture[str]) -> None:
    """Steps are not for the standard output of whoever embeds this; nor for its standard error."""
    LOG.info("transition", machine="TRANSACTION")
    assert capfd.readouterr() == ("", "")


def test_a_warning_reaches_the_standard_library(caplog: pytest.LogCaptureFixture) -> None:
    """With its event, its facts and those that were bound."""
    LOG.warning("transaction_note", note="a sentence")
    (entry,) = caplog.records
    assert (entry.name, entry.levelno) == ("quiesce.test", logging.WARNING)
    assert entry.getMessage() == "event='transaction_note' wire_id='step-1-0123abcd' note='a sentence'"


def test_the_standard_library_can_ask_for_more(caplog: pytest.LogCaptureFixture) -> None:
    """As with every other library: by the logger's name and level."""
    with caplog.at_level(logging.INFO, logger="quiesce.test"):
        LOG.info("transition")
    assert [entry.levelno for entry in caplog.records] == [logging.INFO]


def test_an_exception_comes_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    """A fault of ours can be found."""
    try:
        int("a reason")
    except ValueError:
        LOG.exception("fault")
    (entry,) = caplog.records
    assert entry.exc_info is not None
    assert isinstance(entry.exc_info[1], ValueError)


@pytest.mark.parametrize("method", ["info", "warning", "error", "exception"])
def test_a_configuration_of_structlog_decides_also_one_that_comes_later(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Loggers that were made before see it; the standard library gets nothing then."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    with capture_logs() as events:
        getattr(LOG, method)("something", number=1)
    assert [(event["event"], event["wire_id"], event["number"]) for event in events] == [
        ("something", "step-1-0123abcd", 1)
    ]
    assert events[0]["log_level"] in {method, "error"}
    assert not caplog.records
