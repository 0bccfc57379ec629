"""The picture and the page of a dispatch study."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import mean, stdev

from deploy.methods import DEFAULT
from studies.dispatch import DispatchRow

_WIDTH, _BAR, _GAP, _LEFT, _RIGHT = 720, 22, 10, 150, 90


def summary(rows: Sequence[DispatchRow]) -> list[tuple[str, str, str, list[DispatchRow]]]:
    """Give (model, service, policy, rows of its seeds), in the order of the rows."""
    groups: dict[tuple[str, str, str], list[DispatchRow]] = {}
    for row in rows:
        groups.setdefault((row.model, row.service, row.policy), []).append(row)
    return [(*key, group) for key, group in groups.items()]


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Give mean and standard deviation; 0 for a single value."""
    return mean(values), stdev(values) if len(values) > 1 else 0.0


def picture(rows: Sequence[DispatchRow], model: str, service: str) -> str:
    """Give an SVG: a bar per policy, a whisker of one standard deviation to either side."""
    groups = [group for group in summary(rows) if group[:2] == (model, service)]
    figures = [(name, *spread([r.allowable_rps for r in group])) for _, _, name, group in groups]
    highest = max((rate + deviation for _, rate, deviation in figures), default=1.0) or 1.0
    scale = (_WIDTH - _LEFT - _RIGHT) / highest
    height = 34 + len(figures) * (_BAR + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" font-family="sans-serif" font-size="13" role="img">',
        f"<title>Allowable rate of {escape(model)}, {escape(service)} service times</title>",
        f'<text x="0" y="16">{escape(model)}, {escape(service)} service times: allowable rate, '
        "requests/s</text>",
    ]
    for place, (name, rate, deviation) in enumerate(figures):
        y = 28 + place * (_BAR + _GAP)
        end, middle = _LEFT + rate * scale, y + _BAR / 2
        colour = "#2a6f97" if name == DEFAULT.dispatch else "#a9b4bd"
        parts += [
            f'<text x="{_LEFT - 8}" y="{middle + 4}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{_LEFT}" y="{y}" width="{rate * scale:.1f}" height="{_BAR}" '
            f'fill="{colour}"/>',
            f'<line x1="{end - deviation * scale:.1f}" x2="{end + deviation * scale:.1f}" '
            f'y1="{middle}" y2="{middle}" stroke="black"/>',
            f'<text x="{end + deviation * scale + 6:.1f}" y="{middle + 4}">{rate:.1f}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def page(rows: Sequence[DispatchRow], requests: int) -> str:
    """Give the report as one HTML document with its pictures inside."""
    pairs = list(dict.fromkeys((row.model, row.service) for row in rows))
    seeds = len({row.seed for row in rows})
    sections = [
        f"<h2>{escape(model)}, {escape(service)} service times</h2>"
        + picture(rows, model, service)
        + _table([group for group in summary(rows) if group[:2] == (model, service)])
        for model, service in pairs
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Dispatch</title>'
        "<style>body{font-family:sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:right}"
        "td:first-child,th:first-child{text-align:left}svg{max-width:100%}</style>"
        "<h1>Dispatch policies</h1>"
        f"<p>{seeds} seeds of {requests} requests. Allowable rate: the largest Poisson rate with "
        "at least 99 % of the requests within the QoS, mean and standard deviation over seeds. "
        "Lateness of the late: at the allowable rate of the first policy; rejected requests "
        "have none.</p>" + "".join(sections) + "</html>\n"
    )


def _table(groups: Sequence[tuple[str, str, str, list[DispatchRow]]]) -> str:
    first = spread([row.allowable_rps for row in groups[0][3]])[0]
    head = (
        "<table><tr><th>policy<th>pool<th>rate, 1/s<th>sd, %<th>relative<th>late mean, ms"
        "<th>late worst, ms<th>decision p50, us<th>p99, us</tr>"
    )
    lines = []
    for _, _, name, group in groups:
        rate, deviation = spread([row.allowable_rps for row in group])
        cells = [
            escape(name),
            escape(group[0].pool),
            f"{rate:.1f}",
            f"{100 * deviation / rate:.1f}" if rate else "",
            f"{rate / first:.3f}" if first else "",
            f"{mean(row.late_mean_s for row in group) * 1e3:.1f}",
            f"{max(row.late_max_s for row in group) * 1e3:.1f}",
            f"{mean(row.decision_us_p50 for row in group):.0f}",
            f"{mean(row.decision_us_p99 for row in group):.0f}",
        ]
        lines.append("<tr>" + "".join(f"<td>{cell}" for cell in cells) + "</tr>")
    return head + "".join(lines).replace("nan", "-") + "</table>"
