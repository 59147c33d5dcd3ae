"""Figures of the report page, drawn with matplotlib, as SVG that a strict content security policy allows. Names of
models are never drawn into a figure, since they are untrusted; the page has its own legends."""

from __future__ import annotations

import functools
import io
import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from harness.core.errors import UsageError
from harness.report import numerals
from harness.report.page.columns import COST, SECONDS, TOKENS, TURNS, CostBin
from harness.report.page.markup import Html, tag
from harness.stats.passk import PassRate

COLOURS = {
    "ink": "#0f0f01", "muted": "#0f0f02", "grid": "#0f0f03",
    **{f"c{number}": f"#0f0f1{number}" for number in range(8)},
}  # fmt: skip
"""Placeholder colours for drawing; the page's style sets the real ones, for light and dark mode."""

MARKERS = "os^DvPX*"
"""Marker of each colour, for readers who cannot distinguish the colours."""

SYMBOLS = "●■▲◆▼✚✖★"
"""Marker of each colour as a character, for legends and tables."""

BARS = 20
"""Number of steps of the reward axis in a histogram; each bar is centred on a step."""

AXES = {TURNS: "turns of the model", TOKENS: "tokens written", SECONDS: "seconds", COST: "US dollars"}

_SIZE = (4.4, 2.7)
"""Size of a figure in inches; at 72 pixels per inch, about the width of a page column."""

_STYLE: dict[str, object] = {
    "svg.fonttype": "none", "svg.hashsalt": "bench", "font.size": 10, "axes.spines.top": False,
    "axes.spines.right": False, "axes.edgecolor": COLOURS["muted"], "axes.labelcolor": COLOURS["muted"],
    "axes.labelsize": 10, "xtick.color": COLOURS["muted"], "ytick.color": COLOURS["muted"], "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5, "axes.grid": True, "axes.grid.axis": "y", "grid.color": COLOURS["grid"],
    "grid.linewidth": 0.8, "axes.axisbelow": True, "axes.linewidth": 0.8, "text.parse_math": False,
}  # fmt: skip


def bars_of(means: Iterable[float], limits: tuple[float, float]) -> list[int]:
    """Heights of a histogram's bars: for each step of the reward axis, the number of means that are nearest to it."""
    low, high = limits
    counts = [0] * (BARS + 1)
    for mean in means:
        counts[min(BARS, max(0, round((mean - low) / (high - low) * BARS)))] += 1
    return counts


def colour(number: int) -> str:
    """CSS class that gives an element the colour of a model."""
    return f"c{number % 8}"


def symbol(number: int) -> str:
    """Character that resembles the marker of a model in the figures."""
    return SYMBOLS[number % 8]


class Plots:
    """Renderer of the figures of one page.

    Raises:
        UsageError: matplotlib is not installed.
    """

    def __init__(self) -> None:
        try:
            import matplotlib
            from matplotlib.figure import Figure
        except ImportError as error:
            raise UsageError(
                "the figures of the report need matplotlib, which is not installed: "
                "pip install 'bench-harness[report]', or leave them out with --no-plots"
            ) from error
        self._library: Any = matplotlib
        self._figure: Any = Figure
        self._numbers = itertools.count()

    def distribution(
        self, counts: Sequence[int], tallest: int, limits: tuple[float, float], number: int, title: str
    ) -> Html:
        """Histogram of the examples' mean rewards.

        Args:
            counts: Examples per bar, from `bars_of`.
            tallest: Highest bar of all figures side by side.
            limits: Minimum and maximum of the axis.
            number: Colour index of the run.
            title: Description of the figure.
        """
        low, high = limits
        step = (high - low) / BARS

        def draw(axes: Any) -> None:
            places = [low + step * position for position in range(BARS + 1)]
            axes.bar(places, counts, width=0.86 * step, color=COLOURS[colour(number)])
            axes.set_xlim(low - step, high + step)
            axes.set_ylim(0, 1.05 * tallest)
            axes.set_xlabel("mean reward of an example")
            axes.set_ylabel("examples")
            axes.yaxis.get_major_locator().set_params(integer=True, nbins=5)
            axes.yaxis.set_major_formatter(_count)

        return self._drawn(draw, title)

    def attempts(
        self, curves: Sequence[tuple[int, Mapping[int, PassRate], Mapping[int, PassRate]]], title: str
    ) -> Html:
        """Plot pass@k (at least one of k rollouts passes) and pass^k (all of them pass) against k, for several runs.

        Args:
            curves: For each run: its colour index, pass@k by k, and pass^k by k.
            title: Description of the figure.
        """

        def draw(axes: Any) -> None:
            for number, at_least_one, all_of_them in curves:
                for rates, dashes in ((at_least_one, "-"), (all_of_them, "--")):
                    known = [(k, rate) for k, rate in rates.items() if rate.value is not None]
                    _line(axes, number, [k for k, _ in known], [rate.value for _, rate in known], dashes)
                    _band(axes, number, [(k, rate.estimate.low, rate.estimate.high) for k, rate in known])
            powers = sorted({k for _, at_least_one, _ in curves for k in at_least_one})
            axes.set_xscale("log", base=2)
            axes.set_xticks(powers, [str(k) for k in powers])
            axes.minorticks_off()
            axes.set_ylim(-0.03, 1.03)
            axes.set_xlabel("attempts k")
            axes.set_ylabel("share of examples")

        return self._drawn(draw, title)

    def relation(self, measure: str, runs: Sequence[tuple[int, Sequence[CostBin]]], title: str) -> Html:
        """Plot mean reward by resource use: one point per group of rollouts, with its interval and range of use.

        Groups are not connected, since there may be no rollouts between them.

        Args:
            measure: The resource.
            runs: For each run: its colour index, and its groups.
            title: Description of the figure.
        """

        def draw(axes: Any) -> None:
            for number, groups in runs:
                known = [group for group in groups if group.reward.mean is not None]
                places = [group.middle for group in known]
                _line(axes, number, places, [group.reward.mean for group in known], "none")
                for group in known:
                    level = [group.reward.mean] * 2
                    axes.plot([group.low, group.high], level, color=COLOURS[colour(number)], linewidth=1.6, alpha=0.65)
                    if group.reward.low is not None:
                        ends = [group.reward.low, group.reward.high]
                        axes.plot([group.middle] * 2, ends, color=COLOURS[colour(number)], linewidth=1.1, alpha=0.65)
            every = [group.middle for _, groups in runs for group in groups]
            if min(every) > 0 and max(every) > 30 * min(every):
                axes.set_xscale("log")
                axes.minorticks_off()
            else:
                axes.locator_params(axis="x", nbins=6)
            axes.xaxis.set_major_formatter(functools.partial(_amount, measure))
            axes.set_xlabel(AXES[measure])
            axes.set_ylabel("mean reward")

        return self._drawn(draw, title)

    def _drawn(self, draw: Callable[[Any], None], title: str) -> Html:
        out = io.StringIO()
        # Our own style instead of the user's matplotlibrc.
        with self._library.rc_context(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a font without a glyph, an axis with equal ends
            self._library.rcdefaults()
            self._library.rcParams.update(_STYLE)
            figure = self._figure(figsize=_SIZE, layout="constrained")
            figure.patch.set_visible(False)
            axes = figure.subplots()
            axes.patch.set_visible(False)
            axes.tick_params(length=3, width=0.8)
            draw(axes)
            figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        return fitted(out.getvalue(), title, f"p{next(self._numbers)}-")


def _line(axes: Any, number: int, places: Sequence[float], heights: Sequence[float | None], dashes: str) -> None:
    axes.plot(
        places, heights, linestyle=dashes, color=COLOURS[colour(number)], linewidth=1.6, marker=MARKERS[number % 8],
        markersize=5, markeredgewidth=0,
    )  # fmt: skip


def _band(axes: Any, number: int, ends: Sequence[tuple[int, float | None, float | None]]) -> None:
    known = [(k, low, high) for k, low, high in ends if low is not None and high is not None]
    if len(known) > 1:
        places, lows, highs = zip(*known, strict=True)
        axes.fill_between(places, lows, highs, color=COLOURS[colour(number)], alpha=0.13, linewidth=0)


def _count(value: float, _place: int) -> str:
    return numerals.short_count(round(value))


def _amount(measure: str, value: float, _place: int) -> str:
    if not math.isfinite(value) or value < 0:
        return ""
    if measure == COST:
        return f"${value:.2g}"
    if measure == SECONDS and value < 10:
        return f"{value:g}"[:6]
    return numerals.short_count(round(value)) if value >= 1000 else f"{value:g}"[:6]


_NAMES = {value: name for name, value in COLOURS.items()}

_ELEMENTS = frozenset({"svg", "g", "path", "use", "defs", "clipPath", "rect", "text", "tspan"})

_PROPERTIES = frozenset(
    {
        "clip-path", "fill", "stroke", "stroke-width", "stroke-linejoin", "stroke-linecap", "stroke-dasharray",
        "stroke-dashoffset", "stroke-opacity", "fill-opacity", "opacity", "text-anchor", "font-size", "font-weight",
    }
)  # fmt: skip
"""CSS properties of a `style` attribute that become attributes of the SVG element."""

_ATTRIBUTES = _PROPERTIES | {"d", "x", "y", "width", "height", "transform", "viewBox"}

_DECIMALS = re.compile(r"-?\d+\.\d{3,}")
_PIXELS = re.compile(r"([\d.]+)px")
_REFERENCE = re.compile(r"url\(#([\w-]+)\)|#([\w-]+)")


def fitted(drawn: str, title: str, prefix: str) -> Html:
    """Convert matplotlib's SVG to markup for the page: only known elements and attributes, without styles (the page's
    policy forbids them), with unique names, and with CSS classes for colours.

    Args:
        drawn: The whole SVG document.
        title: Description for screen readers.
        prefix: Prefix of names inside the figure; must be unique on the page.
    """
    root = ElementTree.fromstring(drawn)
    named = {name for element in root.iter() for key, value in _flat(element) if (name := _target(key, value))}

    def converted(element: ElementTree.Element) -> Html | None:
        kind = _local(element.tag)
        if kind not in _ELEMENTS:
            return None
        attributes = dict(_attributes(element, named, prefix))
        children = [converted(child) for child in element]
        if kind in ("g", "defs") and not any(children):
            return None
        return tag(kind, element.text if kind in ("text", "tspan") else None, *children, **attributes)

    box = " ".join(_short(part) for part in root.get("viewBox", "0 0 1 1").split())
    inner = map(converted, root)
    return tag("svg", *inner, viewBox=box, role="img", aria_label=title, class_="plot", stroke_linejoin="round")


def _attributes(element: ElementTree.Element, named: set[str], prefix: str) -> Iterator[tuple[str, str]]:
    classes: list[str] = []
    for key, value in _flat(element):
        if key == "id":
            if value in named:
                yield "id", f"{prefix}{value}"
        elif key in ("href", "clip-path"):
            if target := _target(key, value):
                yield key, f"#{prefix}{target}" if key == "href" else f"url(#{prefix}{target})"
        elif key in ("fill", "stroke") and value.lower() in _NAMES:
            classes.append(f"{key[0]}-{_NAMES[value.lower()]}")
        elif key in _ATTRIBUTES:
            yield key, _DECIMALS.sub(lambda found: _short(found[0]), " ".join(value.split()))
    if classes:
        yield "class", " ".join(classes)


def _flat(element: ElementTree.Element) -> Iterator[tuple[str, str]]:
    """Attributes of an SVG element, including those in `style`."""
    yield from ((_local(key), value) for key, value in element.attrib.items() if _local(key) != "style")
    for part in element.get("style", "").split(";"):
        key, _, value = (word.strip() for word in part.partition(":"))
        if key == "font" and (size := _PIXELS.search(value)):
            yield "font-size", size[1]
        elif key in _PROPERTIES:
            yield key, value.removesuffix("px") if key == "font-size" else value


def _target(key: str, value: str) -> str | None:
    """Return the name of the element that an SVG attribute refers to; None if it refers to none."""
    found = _REFERENCE.fullmatch(value.strip()) if key in ("href", "clip-path") else None
    return found and (found[1] or found[2])


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _short(number: str) -> str:
    return f"{round(float(number), 2):g}" if abs(float(number)) < 1e5 else number
