"""What is made for others: metadata, chart, image, workflows, the page of the index, the site."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from ncclscope.cli import verb_parser
from ncclscope.cli.dashboards import FOLDER
from tests.support.paths import ROOT
from tests.support.player import ncclscope
from tools import addresses, release, site_links

VERSION = release.version()
CHART = ROOT / "charts" / "ncclscope"


def rendered(template: Path, values: dict[str, Any]) -> Any:
    """A template as Helm renders it: the part of its language that the chart uses."""
    text = template.read_text()
    condition = r"\{\{- if \.Values\.([\w.]+) \}\}\n(.*?)\{\{- end \}\}\n"
    text = re.sub(condition, lambda m: m[2] if look_up(values, m[1]) else "", text, flags=re.S)
    text = text.replace("{{ .Release.Name }}", "scope")

    def value(match: re.Match[str]) -> str:
        found = look_up(values, match[1])
        return f'"{found}"' if match[2] else str(found)

    text = re.sub(r"\{\{ \.Values\.([\w.]+)( \| quote)? \}\}", value, text)
    assert "{{" not in text
    return yaml.safe_load(text)


def look_up(values: dict[str, Any], path: str) -> Any:
    for name in path.split("."):
        values = values[name]
    return values


def test_the_chart_is_what_it_should_be() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    daemons = rendered(CHART / "templates" / "daemonset.yaml", values)
    pod = daemons["spec"]["template"]["spec"]
    assert daemons["spec"]["selector"]["matchLabels"].items() <= (
        daemons["spec"]["template"]["metadata"]["labels"].items()
    )
    containers = [*pod["initContainers"], *pod["containers"]]
    assert [container["name"] for container in containers] == ["plugin", "serve", "prune"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    for container in containers:
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        assert container["image"] == f"{values['image']['repository']}:v{VERSION}"
    assert containers[1]["args"][-2:] == ["--port", "9479"]
    assert "--all-hosts" in containers[1]["args"], "pods have host names of their own"
    verb_parser("serve").parse_args(containers[1]["args"][1:])
    assert rendered(CHART / "templates" / "podmonitor.yaml", values) is None
    values["podMonitor"]["enabled"], values["prune"]["enabled"] = True, False
    monitor = rendered(CHART / "templates" / "podmonitor.yaml", values)
    assert monitor["spec"]["podMetricsEndpoints"][0]["port"] == "nccl-metrics"
    daemons = rendered(CHART / "templates" / "daemonset.yaml", values)
    assert len(daemons["spec"]["template"]["spec"]["containers"]) == 1


def test_helm_itself_takes_the_chart(tmp_path: Path) -> None:
    """Linted, rendered, and held against the API's own schemas."""
    binaries = Path(sys.executable).parent
    if not (binaries / "helm").exists():
        pytest.skip("Helm is not installed")

    def printed(*words: str | Path) -> str:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    printed(binaries / "helm", "lint", "--strict", CHART)
    for number, settings in enumerate(("port=9999", "podMonitor.enabled=true,prune.enabled=false")):
        text = printed(binaries / "helm", "template", "scope", CHART, "--set", settings)
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        daemons = next(d for d in yaml.safe_load_all(text) if d["kind"] == "DaemonSet")
        if not number:
            values["port"] = 9999
            assert daemons == rendered(CHART / "templates" / "daemonset.yaml", values)
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        printed(binaries / "kubernetes-validate", "--strict", file)


def test_hadolint_takes_the_images(tmp_path: Path) -> None:
    """The repository's Dockerfile, and the one that the page of Kubernetes shows."""
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("hadolint is not installed")
    page = (ROOT / "docs" / "deploy" / "kubernetes.md").read_text()
    (shown,) = re.findall(r"^```dockerfile file=Dockerfile\n(.*?)^```$", page, re.M | re.S)
    wrong = "FROM python\nRUN cd /x && pip install y\n"
    complaints = {}
    own = (ROOT / "Dockerfile").read_text()
    for name, text in (("own", own), ("shown", shown), ("wrong", wrong)):
        (tmp_path / name).write_text(text)
        ran = subprocess.run(
            [hadolint, "--no-color", tmp_path / name], capture_output=True, text=True
        )
        complaints[name] = ran.stdout
    assert complaints["own"] == complaints["shown"] == ""
    assert "DL3006" in complaints["wrong"]


def test_versions_are_the_same_everywhere() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert chart["version"] == chart["appVersion"] == citation["version"] == VERSION
    assert f"## {VERSION}" in (ROOT / "CHANGELOG.md").read_text()
    assert ncclscope("--version").stdout == f"ncclscope {VERSION}\n"


def test_workflows_and_templates_are_yaml() -> None:
    files = sorted((ROOT / ".github").rglob("*.yml"))
    assert len(files) == 6
    assert all(yaml.safe_load(file.read_text()) for file in files)


def test_readme_has_absolute_links_on_an_index() -> None:
    text = release.readme_for_index((ROOT / "README.md").read_text(), "v1.0")
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) > 30
    assert all(link.startswith(("https://", "#")) for link in links)
    repository = addresses.setting("Repository")
    assert f"{repository}/blob/v1.0/docs/verbs/run.md" in links
    assert f"{repository}/raw/v1.0/docs/pictures/straggler.png" in links, "a page is no picture"


def test_the_site_lists_pages_that_there_are() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    listed = re.findall(r"^ +- (?:[\w-]+: )?([\w/-]+\.md)$", text, re.M)
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert len(listed) > 50  # pages that it does not list are built, and README.md has them all
    assert set(listed) <= set(pages)
    assert "https://" not in text, "its addresses come from pyproject.toml"
    settings = site_links.on_config({})
    assert settings["repo_url"] == addresses.setting("Repository")


def test_addresses_have_one_setting() -> None:
    assert not addresses.stale_files(), "run `python -m tools.addresses`"
    repository, site = addresses.setting("Repository"), addresses.setting("Documentation")
    host, owner = repository.split("/")[2:4]
    files = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    naming = {
        name
        for name in files
        if name and (ROOT / name).is_file()
        for text in [(ROOT / name).read_bytes()]
        if f"{host}/{owner}/".encode() in text or site.encode() in text
    }
    written = {str(file.relative_to(ROOT)) for file in addresses.files()}
    assert naming - written == {"tools/addresses.py", "CONTRIBUTING.md"}, "they explain the setting"


def test_a_release_is_of_a_tag_and_of_its_own_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    own, tag = addresses.setting("Repository"), f"v{VERSION}"
    assert release.refusals(tag, own, takes_placeholder=False) == []
    (reason,) = release.refusals("v0.0.1", own, takes_placeholder=False)
    assert reason.startswith("the tag is v0.0.1")
    (reason,) = release.refusals(tag, "https://forge.example/fork/ncclscope", True)
    assert "pyproject.toml names" in reason
    monkeypatch.setattr(addresses, "stale_files", lambda: ["Chart.yaml"])
    (reason,) = release.refusals(tag, own, takes_placeholder=False)
    assert reason.startswith("Chart.yaml: other addresses")


def test_a_made_up_address_is_not_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "PLACEHOLDER", addresses.setting("Repository"))
    (reason,) = release.refusals(None, None, takes_placeholder=False)
    assert "is made up" in reason
    assert release.refusals(None, None, takes_placeholder=True) == []
    monkeypatch.setattr(addresses, "PLACEHOLDER", "https://another.example/a/b")
    assert release.refusals(None, None, takes_placeholder=False) == []


def test_a_wheel_is_of_the_platform_that_auditwheel_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = 'scope.whl is consistent\nwith the following platform tag: "manylinux_2_17_x86_64".'
    done = subprocess.CompletedProcess([], 0, said, "")
    monkeypatch.setattr(release.subprocess, "run", lambda *_, **__: done)
    assert "manylinux_2_17" in release.audit(Path("scope-1.0-py3-none-manylinux_2_17_x86_64.whl"))
    with pytest.raises(SystemExit, match="another platform"):
        release.audit(Path("scope-1.0-py3-none-manylinux_2_5_x86_64.whl"))
    done.stdout = "cannot read it"
    with pytest.raises(SystemExit, match="cannot read it"):
        release.audit(Path("scope-1.0-py3-none-manylinux_2_17_x86_64.whl"))


def test_workflows_run_targets_of_make() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    used = set()
    for file in (ROOT / ".github" / "workflows").iterdir():
        used |= set(re.findall(r"\bmake ([a-z]+)\b", file.read_text()))
    assert {"release", "chart", "site", "docs", "sql"} <= used <= targets


def test_links_out_of_the_docs_lead_to_the_repository() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="guides/hang.md"), meta={})
    text = "[a](../../README.md#x) [b](../faq.md) [c](slower.md) [d](https://e) [f](#g)"
    changed = site_links.on_page_markdown(text, page, {"repo_url": "https://r"})
    assert changed == text.replace("../../README.md", "https://r/blob/main/README.md")
    assert page.meta["search"]["boost"] > 1, "a search shows guides first"


def test_dashboards_are_written(tmp_path: Path) -> None:
    done = ncclscope("dashboards", "-o", tmp_path / "new" / "folder")
    assert done.returncode == 0
    written = sorted((tmp_path / "new" / "folder").iterdir())
    assert [file.read_bytes() for file in written] == [
        file.read_bytes() for file in sorted(FOLDER.iterdir())
    ]
    assert len(written) == 6
    (tmp_path / "file").touch()
    refused = ncclscope("dashboards", "-o", tmp_path / "file" / "folder")
    assert refused.returncode == 1
    assert "Name another directory with -o" in refused.stderr
