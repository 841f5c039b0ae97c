"""Marked blocks of documents: made anew in place, and nothing else of the document touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.mermaid import read_picture
from support.programs import DOT, needs

from quiesce.diagrams import BlockFault, find_sheet, update_blocks

LINES = st.lists(
    st.sampled_from(("text", "", "# heading", "| a | b |", "<!-- a comment -->", "  indented", "> quoted")), max_size=6
).map(lambda lines: "".join(f"{line}\n" for line in lines))


def document(request: str, *, old: str = "old\n", before: str = "", after: str = "") -> str:
    """A document with one block."""
    return f"{before}<!-- quiesce:diagram {request} -->\n{old}<!-- /quiesce -->\n{after}"


@given(before=LINES, after=LINES, old=LINES)
def test_only_the_block_changes(before: str, after: str, old: str) -> None:
    """What stands around a block stays byte by byte, and what stood in it does not matter."""
    text, count = update_blocks(document("release mermaid focus=closing:0", old=old, before=before, after=after))
    again, _ = update_blocks(text)
    assert count == 1
    assert text.startswith(f"{before}<!-- quiesce:diagram release mermaid focus=closing:0 -->\n\n```mermaid\n")
    assert text.endswith(f"```\n\n<!-- /quiesce -->\n{after}")
    assert again == text


def test_each_format_has_its_shape() -> None:
    """Code is fenced with its language, a page loses its title and lowers its headings, Mermaid is the default."""
    shapes = {"dot": "```dot\n", "plantuml": "```plantuml\n", "scxml": "```xml\n", "xstate": "```json\n"}
    for form, opening in shapes.items():
        assert opening in update_blocks(document(f"release {form}"))[0]
    page, _ = update_blocks(document("joint markdown"))
    assert "### Rules\n" in page
    assert "# joint" not in page.replace("### Rules", "")
    picture = update_blocks(document("transaction"))[0].split("```mermaid\n")[1].split("```")[0]
    assert read_picture(picture) == read_picture(find_sheet("transaction").mermaid())


@needs(DOT)
def test_an_inline_picture_has_no_empty_line() -> None:
    """HTML in Markdown ends at an empty line, so an SVG has none."""
    text, _ = update_blocks(document("release svg focus=closing:0"))
    inside = text.split("-->\n\n", 1)[1].rsplit("\n\n<!--", 1)[0]
    assert inside.startswith("<svg ")
    assert "\n\n" not in inside


def test_line_ends_are_kept() -> None:
    """A document with Windows line ends keeps them, also within the block."""
    text, _ = update_blocks(document("release", before="a\n", after="b\n").replace("\n", "\r\n"))
    assert text.count("\n") == text.count("\r\n") > 5


def test_a_byte_order_mark_stays_first() -> None:
    """A document that an editor has begun with one may begin with a block, and keeps it."""
    plain = document("release")
    assert update_blocks(f"\ufeff{plain}") == (f"\ufeff{update_blocks(plain)[0]}", 1)


def test_a_mark_inside_of_code_is_none() -> None:
    """A document may show how a block is written without having one."""
    for fence in ("```", "~~~~", "   ```"):
        shown = f"{fence}markdown\n{document('nothing at all')}{fence}\n"
        assert update_blocks(shown) == (shown, 0)


def test_several_blocks_are_all_made() -> None:
    """Blocks are counted, and each is its own."""
    text, count = update_blocks(document("release") + document("transaction scxml"))
    assert count == 2
    assert text.index("stateDiagram-v2") < text.index("<scxml ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (document("transacton"), "line 1: there is no machine 'transacton'; did you mean transaction"),
        (document("release gif"), "line 1: there is no format 'gif'; there are: mermaid, markdown, dot"),
        (document("release png"), "line 1: a document cannot hold PNG"),
        (document("phases mermaid"), "line 1: 'phases' cannot be had as mermaid"),
        (document("release mermaid dot"), "line 1: 'release mermaid dot' is not"),
        (document("release focus=nowhere"), "line 1: RELEASE has no state 'nowhere'"),
        (document("no.such:TABLE"), "line 1: there is no module 'no.such'"),
        ("a\n<!-- quiesce:diagram release -->\n", "line 2: the block is not closed"),
        ("a\n<!-- /quiesce -->\n", "line 2: a block is closed here that was not opened"),
        (
            "<!-- quiesce:diagram release -->\n" + document("release"),
            "line 2: a block begins inside the one of line 1",
        ),
    ],
)
def test_a_faulty_block_is_named_by_its_line(text: str, says: str) -> None:
    """Each fault says in which line it is, what is wrong and what there is."""
    with pytest.raises(BlockFault) as caught:
        update_blocks(text)
    assert says in str(caught.value)
