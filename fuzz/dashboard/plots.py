"""Pictures: SVG drawn by matplotlib, without pyplot, which keeps state for the whole process.

A picture is an `<img>` with a `data:` address, so that a page and a file that is mailed have the
same one, and nothing in it can run. Its text has the colour of the reader's light or dark scheme.
"""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from attnfuzz.fuzz.dashboard.error_map import NOT_FINITE, ErrorMap
from attnfuzz.fuzz.report.escape import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#010203"
"""Drawn in the colour of text: light on dark, or dark on light."""

COLOURS = ("#2f7ed8", "#d9822b", "#3f9c6b", "#c2528b", "#8a6fd1", "#7d7d7d")
"""Told apart by people who do not see all colours, on white and on near black."""

_STYLE = (
    "<style>:root{color:#24292f}@media(prefers-color-scheme:dark){:root{color:#d5dae0}}</style>"
)
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "attnfuzz",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.parse_math": False,  # a "$" in a name is only a character
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Picture:
    """An image by its `data:` address, and what it shows in words."""

    address: Markup
    alt: str


@dataclass(frozen=True)
class Line:
    """One line of a plot: its name and its points."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    steps: bool = False


def lines(given: Sequence[Line], x_name: str, y_name: str, alt: str) -> Picture:
    """Lines over a common axis."""

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        for one, colour in zip(given, COLOURS, strict=False):
            style = "steps-post" if one.steps else "default"
            axes.plot(one.x, one.y, color=colour, label=plain(one.name), drawstyle=style)
        axes.set_xlabel(x_name)
        axes.set_ylabel(y_name)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))  # counts
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        if len(given) > 1:
            axes.legend()

    return _drawn(draw, (6.4, 2.8), alt)


def bars(values: Mapping[str, float], unit: str, alt: str) -> Picture:
    """A horizontal bar for each value, the first on top."""

    def draw(axes: Axes) -> None:
        names = [plain(name)[:60] for name in values]
        colours = [COLOURS[place % len(COLOURS)] for place in range(len(values))]
        drawn = axes.barh(range(len(values)), list(values.values()), color=colours, height=0.6)
        axes.set_yticks(range(len(values)), names)
        axes.bar_label(drawn, fmt=_amount, padding=3)
        axes.invert_yaxis()
        axes.set_xlabel(unit)
        axes.margins(x=0.12)

    return _drawn(draw, (6.4, 0.7 + 0.32 * max(1, len(values))), alt)


def heat(error_map: ErrorMap, alt: str) -> Picture:
    """Where an output is off: a square for each place, darker where it is further off."""

    def draw(axes: Axes) -> None:
        from matplotlib.colors import ListedColormap

        palette = ["#e8e8e8", *_REDS, "#5b2a86"] if error_map.complete else ["#e8e8e8", "#b2182b"]
        axes.imshow(
            error_map.levels,
            cmap=ListedColormap(palette),
            vmin=-1,
            vmax=NOT_FINITE if error_map.complete else 0,
            interpolation="nearest",
        )
        axes.set_xlabel("last dimension")
        axes.set_ylabel("the one before")

    height, width = len(error_map.levels), len(error_map.levels[0])
    longest = max(height, width)
    size = (max(1.6, 4.2 * width / longest) + 0.8, max(1.2, 4.2 * height / longest) + 0.7)
    return _drawn(draw, size, alt)


_REDS = (
    "#fddbc7", "#f9c0a3", "#f4a582", "#e88468", "#d6604d", "#c8453f", "#b2182b", "#95132a",
    "#7d0f27", "#670c22",
)  # fmt: skip


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3g}"


def _drawn(draw: Callable[[Axes], None], size: tuple[float, float], alt: str) -> Picture:
    import matplotlib
    from matplotlib.figure import Figure

    out = io.StringIO()
    with _ONE_AT_A_TIME, matplotlib.rc_context(_SETTINGS):
        figure: Figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        draw(axes)
        figure.savefig(out, format="svg", metadata={"Date": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor").replace(">", f">{_STYLE}", 1)
    encoded = base64.b64encode(svg.encode()).decode()
    return Picture(Markup(f"data:image/svg+xml;base64,{encoded}"), alt)
