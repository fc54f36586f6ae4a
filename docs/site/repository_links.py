# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A hook of mkdocs: links to files of the repository that are no pages become their paths, which the site lacks."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:|#|/)([^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page's text with paths in place of links that lead out of the site."""
    folder = posixpath.dirname(page.file.src_uri)

    def shown(link: re.Match[str]) -> str:
        text, target = link[1], posixpath.normpath(posixpath.join("docs", folder, link[2]))
        if target.startswith("docs/") and target.endswith(".md"):
            return link[0]
        return f"`{target}`" if text.strip("`") in target else f"{text} (`{target}`)"

    return _LINK.sub(shown, markdown)
