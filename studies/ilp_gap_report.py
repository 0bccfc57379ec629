"""The page of the study of scheduling policies, made from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from studies.ilp_gap_picture import picture
from studies.ilp_gap_summary import GapRow, Line, summary

_STYLE = (
    "body{font:14px sans-serif;margin:2em auto;max-width:60em;padding:0 1em}"
    "table{border-collapse:collapse}svg{max-width:100%}"
    "td,th{padding:2px 8px;text-align:right;border-bottom:1px solid #ddd}"
)
_COLUMNS = (
    *("queries", "policy", "problems", "proven", "mean ratio", "worst ratio", "served"),
    *("seconds", "processor seconds"),
)


def write(rows: Sequence[GapRow], out: Path) -> None:
    """Write `ilp.svg` and `ilp.html` into a folder that exists."""
    lines = summary(rows)
    objective = rows[0].objective if rows else "goodput"
    svg = picture(lines, objective)
    (out / "ilp.svg").write_text(svg, encoding="utf-8")
    page = _page(lines, svg, objective, _about(rows))
    (out / "ilp.html").write_text(page, encoding="utf-8")


def _about(rows: Sequence[GapRow]) -> str:
    """Tell which problems were run, in a sentence."""
    if not rows:
        return "No problem was run."
    shape = f"up to {max(r.plans for r in rows)} plans per query on {rows[0].tiers} shared tiers"
    seeds = sorted({r.seed for r in rows if r.seed is not None})
    problems = len({(r.queries, r.seed) for r in rows})
    if not seeds:
        return f"A problem from a file: {rows[0].queries} queries, {shape}."
    drawn = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    return f"Problems drawn: {problems}, {drawn}, {shape}."


def _page(lines: Sequence[Line], svg: str, objective: str, about: str) -> str:
    head = "".join(f"<th>{title}</th>" for title in _COLUMNS)
    body = "".join(
        f"<tr><td>{line.queries}</td><td>{escape(line.policy)}</td><td>{line.problems}</td>"
        f"<td>{line.proven}</td><td>{line.mean:.4f}</td><td>{line.worst:.4f}</td>"
        f"<td>{line.served:.1f}</td><td>{line.seconds:.3f}</td>"
        f"<td>{line.cpu_seconds:.3f}</td></tr>"
        for line in lines
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Scheduling policies</title>'
        f"<style>{_STYLE}</style><h1>Scheduling policies: {escape(objective)}</h1>"
        f"<p>{escape(about)} Ratios are to the best bound: the optimum where it is proven, else "
        f"what the integer program or the linear relaxation still allows. Unproven problems are "
        f"counted.</p>{svg}<table><tr>{head}</tr>{body}</table></html>\n"
    )
