"""``[metrics]`` and ``[logging]`` of node.toml: each mistake is one message with its line."""

from __future__ import annotations

from typing import Any

import pytest

from stelae.config.node_toml import parse_config
from stelae.spi.errors import ConfigError
from stelae.telemetry.settings import LoggingSettings, MetricsSettings, listen_address
from tests.unit.host_config.plugins import working

SMALL = '[node]\ndirectory = "d"\nlisten = "127.0.0.1:0"\n[cluster]\nid = "c"\n'


def parsed(more: str) -> Any:
    return parse_config(SMALL + more, "node.toml", working()).extra


def test_a_silent_file_serves_metrics_on_loopback_and_logs_for_people() -> None:
    extra = parsed("")
    assert extra["metrics"] == MetricsSettings() and extra["logging"] == LoggingSettings()
    assert listen_address(extra["metrics"]) == ("127.0.0.1", 0)


def test_what_the_file_says_holds() -> None:
    extra = parsed('[metrics]\nenabled = false\nlisten = "[::1]:9"\n[logging]\nformat = "json"\nlevel = "warning"\n')
    assert not extra["metrics"].enabled and listen_address(extra["metrics"]) == ("::1", 9)
    assert (extra["logging"].format, extra["logging"].level) == ("json", "warning")


@pytest.mark.parametrize(
    ("more", "line", "fact"),
    [
        ('[metrics]\nlisten = "0.0.0.0:9"\n', 7, "refusing to listen on 0.0.0.0"),
        ('[metrics]\nlisten = "example.org:9"\n', 7, "cannot listen on the name 'example.org'"),
        ('[metrics]\nlisten = "127.0.0.1"\n', 7, "is not an address"),
        ('[metrics]\nlisten = "127.0.0.1:70000"\n', 7, "is not an address"),
        ("[metrics]\nport = 9\n", 7, "unknown key 'port' in [metrics]"),
        ("[metrics]\nlisten = 9\n", 7, "listen must be a string"),
        ("[metrics]\ndeadline_ms = 1\n", 7, "deadline_ms = 1 is out of bounds"),
        ('[logging]\nformat = "xml"\n', 7, "format cannot be 'xml'"),
        ("[logging]\nrepeats_max = 0\n", 7, "repeats_max = 0 is out of bounds"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(more: str, line: int, fact: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(more)
    assert caught.value.where == f"node.toml:{line}" and fact in caught.value.fact and caught.value.hint


def test_metrics_at_the_address_of_the_node_are_refused_and_not_found_out_by_listening() -> None:
    """The node did not start, and asked whether another node runs there."""
    taken = '[metrics]\nlisten = "127.0.0.1:7051"\n'
    text = SMALL.replace("127.0.0.1:0", "127.0.0.1:7051") + taken
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "node.toml", working())
    assert (caught.value.where, caught.value.fact) == ("node.toml:7", "the node itself listens on 127.0.0.1:7051")
    assert parse_config(text + "enabled = false\n", "node.toml", working()).node.listen == "127.0.0.1:7051"
    assert parsed('[metrics]\nlisten = "127.0.0.1:0"\n')["metrics"].enabled


def test_beyond_loopback_is_possible_if_said_in_as_many_words() -> None:
    extra = parsed('[metrics]\nlisten = "0.0.0.0:9"\ninsecure_listen = true\n')
    assert listen_address(extra["metrics"]) == ("0.0.0.0", 9)
