"""Which Host headers are answered, and by which names others reach this machine."""

import pytest

from ncclscope.http import allowed_hosts
from ncclscope.http.allowed_hosts import AllowedHosts


@pytest.mark.parametrize(
    ("default", "resolved", "printed"),
    [
        ("10.1.2.3", ["10.1.2.3"], ["10.1.2.3", "node7"]),
        ("10.1.2.3", ["127.0.1.1"], ["10.1.2.3"]),  # the name means this machine to itself only
        ("10.1.2.3", [], ["10.1.2.3"]),
        (None, ["127.0.1.1", "10.9.9.9"], ["10.9.9.9"]),  # no way out, yet neighbours
        (None, [], ["node7"]),
    ],
)
def test_what_others_can_call_this_machine(
    monkeypatch: pytest.MonkeyPatch, default: str | None, resolved: list[str], printed: list[str]
) -> None:
    monkeypatch.setattr(allowed_hosts.socket, "gethostname", lambda: "node7")
    monkeypatch.setattr(allowed_hosts, "_default_address", lambda family: default)
    monkeypatch.setattr(allowed_hosts, "_resolve", lambda name, family: resolved)
    assert allowed_hosts.reachable_hosts("0.0.0.0") == printed
    assert allowed_hosts.reachable_hosts("127.0.0.1") == ["127.0.0.1"]
    assert allowed_hosts.reachable_hosts("10.1.2.3") == ["10.1.2.3"]


def test_addresses_of_ipv6_have_brackets() -> None:
    allowed = allowed_hosts.AllowedHosts("::1", 8000)
    assert allowed.allows("[::1]:8000")
    assert allowed.allows("[0:0:0:0:0:0:0:1]:8000")
    assert not allowed.allows("::1:8000")
    assert allowed_hosts.netloc("::1", 8000) == "[::1]:8000"
    assert allowed_hosts.AllowedHosts("127.0.0.1", 80).allows("127.0.0.1")


def test_a_scraper_may_use_any_name_of_a_public_server_and_any_port_of_a_local_one() -> None:
    public = AllowedHosts("0.0.0.0", 9400, from_anywhere=True)
    assert public.allows("metrics.monitoring.svc:80")
    local = AllowedHosts("127.0.0.1", 9400, from_anywhere=True)
    assert local.allows("localhost:1234")
    assert local.allows("127.0.0.1")
    assert local.allows("[::1]:9400")
    assert not local.allows("evil.example:9400")
    assert not local.allows("10.1.2.3:9400")
    assert not local.allows("")
