"""The page as text: the template, filled in, with its style and script inside.

A policy in the page forbids every request and every script and style but its own, which it names by
their digests. All text that comes from a run is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from provable_circuits.discover.results.run import Run
from provable_circuits.errors import CertificateError
from provable_circuits.report.comparison import Comparison
from provable_circuits.report.page.certificate import sheet_view
from provable_circuits.report.page.pictures import number
from provable_circuits.report.page.view import view_of
from provable_circuits.report.page.words import headline, lead

HERE = "provable_circuits.report.page"


def report_page(shown: Run | Comparison, name: str = "run") -> str:
    """One self-contained HTML page that shows a run, or two compared.

    Args:
        shown: the run, or the comparison.
        name: what a single run is called.
    """
    environment = _environment()
    view = view_of(shown, name)
    style, bare, script = (_own_file(file) for file in ("page.css", "bare.css", "page.js"))
    drawings = [view.drawing.picture, *(plot for run in view.runs for plot in run.plots)]
    styles = [style, bare, *(text for drawing in drawings for text in _styles_in(drawing))]
    return environment.get_template("page.html").render(
        view=view,
        style=Markup(style),
        bare=Markup(bare),
        script=Markup(script),
        policy=_policy(styles, script),
    )


def certificate_page(run: Run, name: str = "run") -> str:
    """One self-contained HTML page with the certificate of a run, to be printed on one sheet.

    Args:
        run: the run; it says certified if it was checked.
        name: the name of its folder.

    Raises:
        CertificateError: the run has no certificate.
    """
    view = sheet_view(run, name, headline(run), lead(run))
    if view is None:
        raise CertificateError("The run has no certificate that a page could show.")
    style = _own_file("sheet.css")
    return (
        _environment()
        .get_template("sheet.html")
        .render(
            view=view,
            style=Markup(style),
            policy=_policy([style, *_styles_in(view.drawing)], ""),
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(HERE, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    return environment


def _own_file(name: str) -> str:
    return resources.files(HERE).joinpath(name).read_text(encoding="utf-8")


def _policy(styles: list[str], script: str) -> str:
    """What the page may load: pictures that it carries, these styles and this script."""
    allowed = " ".join(dict.fromkeys(_digest(style) for style in styles))
    return (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"script-src {_digest(script)}; style-src-elem {allowed}; style-src-attr 'unsafe-inline'"
    )


def _digest(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'"


def _styles_in(drawing: str) -> list[str]:
    """The style sheets inside a drawing, as a browser reads them."""
    return [html.unescape(text) for text in re.findall(r"<style>(.*?)</style>", drawing, re.DOTALL)]
