"""The workload's course: known in advance, and different as soon as one turn is lost, doubled or changed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quiesce.cli.workload.course import Transcript, best_of, candidates, course, mark

TASKS = st.text(min_size=1, max_size=30)
TURNS = st.integers(min_value=1, max_value=12)


def texts_of(task: str, turns: int) -> list[str]:
    """What the model says in each turn of an undisturbed rollout."""
    transcript, found = Transcript.of(task), []
    for _ in range(turns):
        texts = candidates(task, transcript.observation)
        found.append(best_of(texts, tuple(mark(task, text) for text in texts)))
        transcript = transcript.append(found[-1])
    return found


def told(task: str, texts: list[str]) -> Transcript:
    """The tool's state after these texts."""
    transcript = Transcript.of(task)
    for text in texts:
        transcript = transcript.append(text)
    return transcript


@given(task=TASKS, turns=TURNS)
def test_the_course_is_what_the_servers_compute(task: str, turns: int) -> None:
    """Model, judge and tool, turn by turn, come to the result that the course foretells."""
    transcript, due = told(task, texts_of(task, turns)), course(task, turns)
    assert (transcript.observation, transcript.turns, transcript.words) == (due.observation, turns, due.words)


@given(task=TASKS, turns=TURNS, place=st.integers(min_value=0, max_value=11))
def test_a_lost_or_doubled_turn_shows(task: str, turns: int, place: int) -> None:
    """A transcript in which one turn is missing or stands twice ends with another observation."""
    texts = texts_of(task, turns)
    at = place % turns
    due = course(task, turns).observation
    assert told(task, texts[:at] + texts[at + 1 :]).observation != due
    assert told(task, texts[: at + 1] + texts[at:]).observation != due


@given(task=TASKS, other=TASKS, turns=TURNS)
def test_tasks_have_courses_of_their_own(task: str, other: str, turns: int) -> None:
    """Two tasks come to the same observation only if they are the same task."""
    assert (course(task, turns).observation == course(other, turns).observation) is (task == other)


@given(marks=st.lists(st.integers(min_value=0, max_value=99), min_size=1, max_size=5))
def test_the_best_is_the_first_of_the_highest(marks: list[int]) -> None:
    """The judge's marks alone decide, and of equals the first is taken."""
    texts = tuple(str(number) for number in range(len(marks)))
    assert best_of(texts, tuple(marks)) == texts[marks.index(max(marks))]
