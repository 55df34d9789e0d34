"""Pictures as SVG text: one stand-alone file each, that scales, and explains itself in words.

Shapes have classes rather than colours of their own, so that a page can restyle a picture. The
style that comes with each holds inside pictures alone, in light and in dark.
"""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from provable_circuits.drawing.diagram import Diagram
from provable_circuits.drawing.picture import scene_of
from provable_circuits.drawing.pixels import data_uri, png
from provable_circuits.drawing.scene import Group, Item, Path, Picture, Rectangle, Scene, Text
from provable_circuits.drawing.style import ROOT, stylesheet
from provable_circuits.drawing.text import writable


def svg(picture: Diagram | Scene, *, interactive: bool = False) -> str:
    """A picture as a stand-alone SVG document.

    Args:
        picture: a circuit diagram, or any other picture.
        interactive: components can be reached by the keyboard, and are announced as buttons. Each
            is a group of the class ``component`` with its name in ``data-component``.
    """
    scene = scene_of(picture) if isinstance(picture, Diagram) else picture
    size = f"{_number(scene.width)} {_number(scene.height)}"
    width, height = size.split()
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{width}" '
        f'height="{height}" style="max-width: 100%; height: auto" '
        f'class="{ROOT} {scene.kind}" role="{"group" if interactive else "img"}" '
        f"aria-label={_quoted(scene.title or scene.kind)}>",
        f"<title>{_escaped(scene.title or scene.kind)}</title>",
        f"<desc>{_escaped(scene.description)}</desc>",
        f"<style>{escape(stylesheet(_roles(scene.items), interactive=interactive))}</style>",
        *(_element(item, interactive) for item in scene.items),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _roles(items: tuple[Item, ...]) -> set[str]:
    roles = set()
    for item in items:
        roles.add(item.role)
        if isinstance(item, Group):
            roles |= _roles(item.items)
    return roles


def _element(item: Item, interactive: bool) -> str:
    match item:
        case Group():
            return _group(item, interactive)
        case Rectangle():
            corners = f' rx="{_number(item.radius)}"' if item.radius else ""
            return f'<rect class="{item.role}" {_place(item)}{corners}/>'
        case Path():
            return f'<path class="{item.role}" d="{_strokes(item)}"/>'
        case Text():
            return _text(item)
        case Picture():
            return (
                f'<image class="{item.role}" {_place(item)} preserveAspectRatio="none" '
                f'style="image-rendering: pixelated" href="{data_uri(png(item.pixels))}"/>'
            )


def _group(group: Group, interactive: bool) -> str:
    settings = [f'class="{group.role}"']
    if group.component is not None:
        settings.append(f"data-component={_quoted(group.component)}")
        if interactive:
            settings.append(f'tabindex="0" role="button" aria-label={_quoted(group.title)}')
    title = f"<title>{_escaped(group.title)}</title>" if group.title else ""
    inside = "".join(_element(item, interactive) for item in group.items)
    return f"<g {' '.join(settings)}>{title}{inside}</g>"


def _text(text: Text) -> str:
    place = f'x="{_number(text.x)}" y="{_number(text.y)}"'
    if text.upright:
        place += f' transform="rotate(-90 {_number(text.x)} {_number(text.y)})"'
    # Not every viewer knows dominant-baseline: the shift centres capitals and digits anywhere.
    return (
        f'<text class="{text.role}" {place} dy="0.36em" font-size="{_number(text.size)}" '
        f'text-anchor="{text.anchor}">{_escaped(text.text)}</text>'
    )


def _strokes(path: Path) -> str:
    end = "Z" if path.closed else ""
    return " ".join(
        "M" + " L".join(f"{_number(x)},{_number(y)}" for x, y in stroke) + end
        for stroke in path.strokes
    )


def _place(item: Rectangle | Picture) -> str:
    return (
        f'x="{_number(item.x)}" y="{_number(item.y)}" '
        f'width="{_number(item.width)}" height="{_number(item.height)}"'
    )


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _escaped(text: str) -> str:
    return escape(writable(text))


def _quoted(text: str) -> str:
    return quoteattr(writable(text))
