"""The style sheet and the script of a run's page. Everything is inside the page: it works without a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quiesce.diagrams.svg import COLORS
from quiesce.diagrams.timeline import Stage
from quiesce.diagrams.timeline_svg import STAGE_COLORS

__all__ = ["SCRIPT", "STYLE"]


def _variables(which: int) -> str:
    return " ".join(f"--{name}: {pair[which]};" for name, pair in COLORS.items())


def _stages(colors: Mapping[Stage, str]) -> str:
    return "\n".join(f".{color} {{ background: var(--{color}) }}" for color in colors.values())


STYLE: Final = f"""\
:root {{ color-scheme: light dark; {_variables(0)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_variables(1)} }} }}
* {{ box-sizing: border-box }}
body {{ margin: 0 auto; padding: 1rem; max-width: 75rem; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, "DejaVu Sans", Verdana, sans-serif; overflow-wrap: break-word }}
h1 {{ font-size: 1.35rem; margin: 0 0 .25rem }}
h2 {{ font-size: 1.1rem; margin: 2rem 0 .5rem }}
p {{ margin: .25rem 0 }}
nav a {{ display: inline-block; margin-right: 1rem }}
a {{ color: var(--call) }}
.faint {{ color: var(--faint) }}
.scroll {{ overflow: auto; max-height: 85vh; border: 1px solid var(--rule); border-radius: 6px }}
.scroll svg {{ display: block; height: auto; max-width: none }}
.zoom:not(:checked) ~ .scroll svg {{ width: 100% }}
table {{ border-collapse: collapse; width: 100%; font-size: .9rem }}
th, td {{ text-align: left; vertical-align: top; padding: .2rem .5rem; border-bottom: 1px solid var(--rule) }}
th {{ position: sticky; top: 0; background: var(--band) }}
td:last-child {{ overflow-wrap: anywhere }}
th.number, td.number {{ white-space: nowrap; text-align: right }}
#journal td:nth-child(4) {{ overflow-wrap: anywhere; min-width: 7rem }}
#journal td:nth-child(5) {{ font-weight: 600 }}
input, button {{ font: inherit; color: inherit; background: var(--band); border: 1px solid var(--rule);
  border-radius: 6px; padding: .3rem .6rem; max-width: 100% }}
.legend span {{ display: inline-block; margin-right: .9rem }}
.legend i {{ display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin-right: .3rem }}
.lanes {{ max-height: 85vh; overflow: auto; border: 1px solid var(--rule); border-radius: 6px; padding: .4rem .6rem }}
.lane {{ display: grid; grid-template-columns: minmax(6rem, 16rem) 1fr minmax(0, 18rem); gap: 0 .6rem;
  align-items: center; padding: .15rem 0 }}
.lane .when {{ font-size: .8rem; color: var(--faint) }}
.bar {{ position: relative; height: .9rem; background: var(--band); border-radius: 2px; overflow: hidden }}
.bar i {{ position: absolute; top: 0; bottom: 0; min-width: 1px }}
pre {{ overflow: auto; max-height: 60vh; background: var(--band); padding: .6rem; border-radius: 6px;
  font-size: .8rem; overflow-wrap: normal }}
.visited path, .node.visited polygon {{ stroke-width: 3.5px }}
.node:not(.visited):not(.start), .edge:not(.visited):not(.start) {{ opacity: .55 }}
{_stages(STAGE_COLORS)}
@media (scripting: none) {{ input:not(.zoom) {{ display: none }} }}
@media print {{
  .scroll, .lanes {{ max-height: none; overflow: visible }}
  .scroll svg {{ max-width: 100% }}
  .bar, .legend i {{ print-color-adjust: exact }}
  nav, input, button, label {{ display: none }}
}}
@media (max-width: 40rem) {{
  body {{ padding: .7rem; font-size: 14px }}
  .lane {{ grid-template-columns: minmax(0, 1fr); padding: .3rem 0 }}
  .cards tr {{ display: block; padding: .4rem .5rem; border-bottom: 1px solid var(--rule) }}
  .cards tr:has(th) {{ display: none }}
  .cards td, .cards td.number {{ display: inline-block; border: 0; padding: 0 .5rem 0 0; min-width: 0 }}
  .cards td:empty {{ display: none }}
  .cards td[data-label]::before {{ content: attr(data-label) " "; color: var(--faint); font-size: .85em;
    font-weight: 400 }}
}}
"""

SCRIPT: Final = """\
"use strict";
(() => {
  const heads = [...document.querySelectorAll("#journal th")].map((head) => head.textContent);
  const rows = JSON.parse(document.getElementById("records").textContent);
  const body = document.querySelector("#journal tbody");
  const count = document.getElementById("count");
  const find = document.getElementById("find");
  const more = document.getElementById("more");
  const PAGE = 200;
  let found = rows;
  let shown = 0;
  const grow = () => {
    const part = document.createDocumentFragment();
    for (const row of found.slice(shown, shown + PAGE)) {
      const line = document.createElement("tr");
      row.forEach((text, place) => {
        const cell = document.createElement("td");
        cell.textContent = text;
        cell.dataset.label = heads[place];
        if (place < 2) cell.className = "number";
        line.append(cell);
      });
      part.append(line);
    }
    body.append(part);
    shown = Math.min(shown + PAGE, found.length);
    count.textContent = `${shown} of ${found.length} records`;
    more.hidden = shown >= found.length;
  };
  const search = () => {
    const words = find.value.toLowerCase().split(/\\s+/).filter(Boolean);
    found = rows.filter((row) => {
      const text = row.join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
    shown = 0;
    body.replaceChildren();
    grow();
  };
  find.addEventListener("input", search);
  more.addEventListener("click", grow);
  const lanes = [...document.querySelectorAll(".lane")];
  const name = document.getElementById("lane");
  name.addEventListener("input", () => {
    const wanted = name.value.toLowerCase();
    for (const lane of lanes) lane.hidden = !lane.dataset.name.toLowerCase().includes(wanted);
  });
  search();
})();
"""
