"""What mkdocs calls: addresses from pyproject.toml; links out of docs/ lead to the repository."""

import re
import sys
from pathlib import Path, PurePosixPath
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # mike does not start in the repository
from tools.addresses import setting

_LINK = re.compile(r"\]\((?!https?:|#)([^)\s#]+)((?:#[^)\s]*)?)\)")


def on_config(config: Any) -> Any:
    """The settings, with the project's addresses."""
    config["site_url"] = setting("Documentation") + "/"
    config["repo_url"] = setting("Repository")
    config["repo_name"] = "/".join(config["repo_url"].split("/")[-2:])
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """The page with such links replaced. A search finds guides first: they have the answers."""
    if page.file.src_uri.startswith("guides/"):
        page.meta["search"] = {"boost": 3}
    folder = PurePosixPath("docs", page.file.src_uri).parent

    def replaced(match: re.Match[str]) -> str:
        parts: list[str] = []
        for part in (folder / match[1]).parts:
            if part == "..":
                parts.pop()
            else:
                parts.append(part)
        if parts[:1] == ["docs"]:
            return match[0]
        return f"]({config['repo_url']}/blob/main/{'/'.join(parts)}{match[2]})"

    return _LINK.sub(replaced, markdown)
