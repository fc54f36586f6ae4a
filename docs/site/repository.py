# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Hooks of mkdocs: every decision note is in the navigation, and links that leave docs/ become paths.

The site holds the pages alone; what they link to in the rest of the repository is named there, not linked.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:|#|/)([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Add the decision notes to the last section of the navigation."""
    (section,) = config.nav[-1].values()
    notes = sorted(Path(config.docs_dir, "decisions").glob("*.md"))
    section.append({"Decisions": [f"decisions/{note.name}" for note in notes]})
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page's text with paths in place of links that lead out of the site."""
    folder = posixpath.dirname(page.file.src_uri)

    def shown(link: re.Match[str]) -> str:
        text, target = link[1], posixpath.normpath(posixpath.join("docs", folder, link[2]))
        if target.startswith("docs/") and target.endswith(".md"):
            return link[0]
        return f"`{target}`" if text.strip("`") in target else f"{text} (`{target}`)"

    return _LINK.sub(shown, markdown)
