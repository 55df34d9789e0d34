"""What ``mkdocs.yml`` cannot say: every page of ``docs/results`` belongs under "Results"."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

SECTION = "Results"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Append the pages that are there, in the order of their names; each is called by its title."""
    folder = Path(config.docs_dir)
    pages = sorted(page.relative_to(folder).as_posix() for page in folder.glob("results/**/*.md"))
    for entry in config.nav or []:
        if SECTION in entry:
            entry[SECTION] = [*entry[SECTION], *pages]
    return config
