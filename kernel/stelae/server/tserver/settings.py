"""Settings of a tablet server: its location, and the time after which its leaders report a silent follower."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stelae.spi.errors import ConfigError
from stelae.spi.settings import setting

_LOCATION = re.compile(r"(/[A-Za-z0-9][A-Za-z0-9_.-]{0,62}){1,8}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TabletServerSettings:
    """Section ``[tserver]``."""

    location: str = setting(
        "", reason="`/dc/rack/host`, or its beginning: replicas of a tablet are spread over locations"
    )
    follower_unhealthy_ms: int = setting(
        60_000,
        unit="ms",
        low=100,
        high=86_400_000,
        reason="a leader reports a member that it has not heard for this time",
    )


def check_location(settings: TabletServerSettings, where: str) -> None:
    """Check the form of the location; ``where`` names the file in errors.

    Raises:
        ConfigError: the location is not one to eight names, each behind a slash.
    """
    if settings.location and not _LOCATION.fullmatch(settings.location):
        fact = f"[tserver] location = {settings.location[:80]!r} is not a location"
        hint = "Write one to eight names, each behind a slash, for example /oslo/rack-3/host-12; or leave it out."
        raise ConfigError(fact, where=where, hint=hint)
