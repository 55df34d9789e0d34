"""How shapes look: a colour and a line for each role, in light and in dark.

The kinds of components differ in shape, in lightness or in their outline too, so that they can be
told apart without colours. The strong colours are those of Okabe and Ito, made for all kinds of
colour vision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif'

ROOT = "provable-circuits-picture"
"""The class of every picture: its style holds inside it and nowhere else."""

LIGHT: Mapping[str, str] = MappingProxyType(
    {
        "paper": "#ffffff",
        "ink": "#1b2430",
        "muted": "#525c69",
        "panel": "#f5f6f8",
        "rule": "#d9dde3",
        "band": "#e9edf2",
        "edge": "#8c99ad",
        "arc": "#5c6b82",
        "kept": "#2f4668",
        "on kept": "#ffffff",
        "tried": "#a9bfe0",
        "undecided": "#fff3cd",
        "removed": "#e4e7eb",
        "on removed": "#59626e",
        "first": "#e69f00",
        "second": "#56b4e9",
        "on colour": "#10151c",
        "focus": "#c2410c",
        "series 1": "#0072b2",
        "series 2": "#d55e00",
        "series 3": "#009e73",
        "series 4": "#b0568a",
        "series 5": "#a67300",
        "series 6": "#6b7685",
    }
)

DARK: Mapping[str, str] = MappingProxyType(
    {
        "paper": "#14181f",
        "ink": "#e8ecf2",
        "muted": "#a3aebd",
        "panel": "#1c222b",
        "rule": "#343d4a",
        "band": "#212833",
        "edge": "#6f7f97",
        "arc": "#93a2b8",
        "kept": "#c6d5ee",
        "on kept": "#10151c",
        "tried": "#4f6a94",
        "undecided": "#4a3d12",
        "removed": "#2b323d",
        "on removed": "#a3aebd",
        "first": "#e69f00",
        "second": "#56b4e9",
        "on colour": "#10151c",
        "focus": "#fb923c",
        "series 1": "#56b4e9",
        "series 2": "#f0843c",
        "series 3": "#2fc49a",
        "series 4": "#e09cc4",
        "series 5": "#f0c04a",
        "series 6": "#a3aebd",
    }
)

SERIES = 6
"""How many series of a chart have a look of their own."""

DASHES: tuple[tuple[float, ...], ...] = ((), (7, 4), (2, 3), (9, 3, 2, 3), (5, 2), (1, 2))


@dataclass(frozen=True, slots=True)
class Look:
    """How one role is drawn: colours by their name in a palette, None for none."""

    fill: str | None = None
    stroke: str | None = None
    width: float = 1.0
    dashes: tuple[float, ...] = ()
    bold: bool = False


LOOKS: Mapping[str, Look] = MappingProxyType(
    {
        "paper": Look("paper"),
        "title": Look("ink", bold=True),
        "heading": Look("ink", bold=True),
        "note": Look("muted"),
        "panel": Look("panel", "rule"),
        "band": Look("band"),
        "edge": Look(stroke="edge", width=0.7),
        "arc": Look(stroke="arc", width=1.6),
        "arc dashed": Look(stroke="arc", width=1.6, dashes=(6, 4)),
        "arrow": Look("arc"),
        "join": Look("paper", "arc", 1.6),
        "join-symbol": Look("ink", bold=True),
        "shape kept": Look("kept"),
        "label kept": Look("on kept", bold=True),
        "shape necessary": Look("kept"),
        "label necessary": Look("on kept", bold=True),
        "shape refuted-when-tried": Look("tried", "kept", 1.4),
        "label refuted-when-tried": Look("ink", bold=True),
        "shape undecided": Look("undecided", "ink", 1.4, dashes=(3, 2)),
        "label undecided": Look("ink", bold=True),
        "shape removable": Look("paper", "kept", 1.4),
        "label removable": Look("ink", bold=True),
        "shape removed": Look("removed"),
        "label removed": Look("on removed"),
        "shape first-only": Look("first", "on colour", 1.4),
        "label first-only": Look("on colour", bold=True),
        "shape second-only": Look("second", "on colour", 1.4),
        "label second-only": Look("on colour", bold=True),
        "axis": Look(stroke="muted"),
        "grid": Look(stroke="rule"),
        "frame": Look(stroke="rule"),
        **{
            f"line series-{i + 1}": Look(stroke=f"series {i + 1}", width=2.2, dashes=DASHES[i])
            for i in range(SERIES)
        },
        **{
            f"mark series-{i + 1}": Look(f"series {i + 1}", "paper", width=0.8)
            for i in range(SERIES)
        },
    }
)
"""The look of each role."""


def stylesheet(roles: set[str], *, interactive: bool = False) -> str:
    """The style of some roles as CSS: light, and dark where the reader prefers that.

    Args:
        roles: what occurs in the picture.
        interactive: components are marked while they are pointed at or have the keyboard's focus.
    """
    used = {role: look for role, look in LOOKS.items() if role in roles}
    rules = [f".{ROOT} text {{ font-family: {FONT}; }}"]
    rules += [_rule(role, _colours(look, LIGHT) + _lines(look)) for role, look in used.items()]
    dark = [_rule(role, _colours(look, DARK)) for role, look in used.items()]
    if interactive:
        rules.append(f".{ROOT} .component {{ cursor: pointer; outline: none; }}")
        rules.append(_pointed(LIGHT))
        dark.append(_pointed(DARK))
    return "\n".join([*rules, "@media (prefers-color-scheme: dark) {", *dark, "}"])


def _pointed(palette: Mapping[str, str]) -> str:
    selectors = ", ".join(f".{ROOT} .component:{how} .shape" for how in ("hover", "focus"))
    return f"{selectors} {{ stroke: {palette['focus']}; stroke-width: 3; }}"


def _rule(role: str, settings: list[str]) -> str:
    selector = "".join(f".{name}" for name in role.split())
    return f".{ROOT} {selector} {{ {'; '.join(settings)}; }}"


def _colours(look: Look, palette: Mapping[str, str]) -> list[str]:
    return [
        f"{part}: {'none' if colour is None else palette[colour]}"
        for part, colour in (("fill", look.fill), ("stroke", look.stroke))
    ]


def _lines(look: Look) -> list[str]:
    settings = []
    if look.stroke is not None:
        settings.append(f"stroke-width: {look.width:g}")
    if look.dashes:
        settings.append(f"stroke-dasharray: {' '.join(f'{dash:g}' for dash in look.dashes)}")
    if look.bold:
        settings.append("font-weight: 600")
    return settings
