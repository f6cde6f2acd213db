"""Charts as SVG text: lines and points over two axes, with a title and a description for those who cannot see them."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 480, 280
LEFT, RIGHT, TOP, BOTTOM = 60, 12, 12, 40

PLOT = {"left": LEFT, "right": WIDTH - RIGHT, "top": TOP, "bottom": HEIGHT - BOTTOM}

Point = tuple[float, float]
Range = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """A named series of points."""

    name: str
    points: Sequence[Point]
    style: str
    """A class of the page's style sheet: `a`, `b`, `c` for lines, `guide` for a reference line."""
    bands: Sequence[Range] = ()
    """The error band of each point: its lower and upper end."""
    has_dots: bool = False


def draw_line_chart(
    series: Sequence[Series],
    *,
    title: str,
    description: str,
    x_label: str,
    y_label: str,
    x_range: Range | None = None,
    y_range: Range | None = None,
    marker: Point | None = None,
    x_names: Sequence[str] = (),
) -> str:
    """Draw lines over two axes; page controls can move the marker. `x_names` label x = 1, 2, 3."""
    is_counted = all(isinstance(x, int) for each in series for x, _ in each.points)
    axes = _Axes(
        x_range or _find_range(series, 0), y_range or _find_range(series, 1), is_counted=is_counted, x_names=x_names
    )
    summary = escape(f"{title}. {description}")
    lines = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{summary}">',
        f"<title>{escape(title)}</title>",
        *axes.draw_grid(x_label, y_label),
    ]
    for each in series:
        lines += _draw_series(each, axes)
    if marker:
        x, y = axes.project(marker)
        lines.append(f'<circle class="dot b here" r="6" transform="translate({x:.1f} {y:.1f})"/>')
    return "\n".join([*lines, "</svg>", _draw_legend(series)])


def project_point(point: Point, x_range: Range, y_range: Range) -> Point:
    """Return the pixel position of a point in a chart with these ranges."""
    return _Axes(x_range, y_range).project(point)


def _draw_series(series: Series, axes: "_Axes") -> list[str]:
    places = [axes.project(point) for point in series.points]
    lines = []
    for (x, _), (low, high) in zip(places, series.bands, strict=False):
        top, bottom = axes.project((0, high))[1], axes.project((0, low))[1]
        lines.append(f'<line class="band {series.style}" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>')
    if len(places) > 1:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        lines.append(f'<polyline class="line {series.style}" points="{path}"/>')
    if series.has_dots or len(places) == 1:
        for (x, y), (value_x, value_y) in zip(places, series.points, strict=True):
            value = f"{series.name}: {_format_number(value_x)}, {_format_number(value_y)}"
            circle = f'<circle class="dot {series.style}" cx="{x:.1f}" cy="{y:.1f}" r="4">'
            lines.append(f"{circle}<title>{escape(value)}</title></circle>")
    return lines


def _draw_legend(series: Sequence[Series]) -> str:
    items = "".join(
        f'<li class="{each.style}{" point" if len(each.points) == 1 else ""}">{escape(each.name)}</li>'
        for each in series
        if each.name
    )
    return f'<ul class="legend">{items}</ul>'


@dataclass(frozen=True)
class _Axes:
    """Maps points of the data to positions in the picture."""

    x: Range
    y: Range
    is_counted: bool = False
    """Whether x values are integers, such as steps."""
    x_names: Sequence[str] = ()
    """Labels of x = 1, 2, 3, where positions are not numbers."""

    def project(self, point: Point) -> Point:
        across = (point[0] - self.x[0]) / ((self.x[1] - self.x[0]) or 1)
        up = (point[1] - self.y[0]) / ((self.y[1] - self.y[0]) or 1)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    def draw_grid(self, x_label: str, y_label: str) -> list[str]:
        lines = []
        numbered = {value: _format_number(value) for value in _choose_ticks(self.x, is_counted=self.is_counted)}
        ticks = {float(i): escape(name) for i, name in enumerate(self.x_names, start=1)} or numbered
        for value, name in ticks.items():
            x, y = self.project((value, self.y[0]))
            lines.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{y:.1f}"/>')
            lines.append(f'<text class="tick" x="{x:.1f}" y="{y + 15:.1f}" text-anchor="middle">{name}</text>')
        for value in _choose_ticks(self.y):
            x, y = self.project((self.x[0], value))
            lines.append(f'<line class="grid" x1="{x:.1f}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            lines.append(
                f'<text class="tick" x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{_format_number(value)}</text>'
            )
        middle_x, middle_y = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
        lines.append(
            f'<text class="axis" x="{middle_x}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>'
        )
        lines.append(
            f'<text class="axis" transform="rotate(-90 12 {middle_y})" x="12" y="{middle_y}" text-anchor="middle">'
            f"{escape(y_label)}</text>"
        )
        return lines


def _find_range(series: Sequence[Series], axis: int) -> Range:
    values = [point[axis] for each in series for point in each.points]
    values += [end for each in series for band in each.bands for end in band] if axis else []
    low, high = min(values, default=0.0), max(values, default=1.0)
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 0.5
    if axis == 0 and high > low:
        return low, high
    # Shares stay within their limits: no accuracy above 1, and no loss below 0.
    return (
        max(low - margin, 0.0) if low >= 0 else low - margin,
        min(high + margin, 1.0) if high <= 1 else high + margin,
    )


def _choose_ticks(ends: Range, *, is_counted: bool = False) -> list[float]:
    """Return at most eight round numbers between two ends; integers if `is_counted`."""
    span = ends[1] - ends[0]
    if not span > 0:
        return [ends[0]]
    size: float = 10.0 ** (len(str(int(span))) - 1 if span >= 1 else -20)
    while size * 10 <= span:
        size *= 10
    steps = [size * part for part in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0)]
    fitting = (step for step in steps if span / step <= 7 and (step.is_integer() or not is_counted))
    step = next(fitting, 1.0)
    first = -(-ends[0] // step)
    return [number * step for number in range(int(first), int(ends[1] / step + 1e-9) + 1)]


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
