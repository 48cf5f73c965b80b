"""The time that a replica tells its core."""


class CoreClock:
    """The time of one core. It never goes back."""

    def __init__(self) -> None:
        self.now_us = 0  #: The time of the last tick.

    def tick(self, now_us: int, deadline_us: int | None) -> int:
        """Return the time of the next ``Tick``.

        A suspended replica must not campaign, because it could append nothing as leader. So the time of its core stops
        just before the deadline. The deadline may be before the last ``Tick``: a leader's is, if a silent peer should
        have been asked again long ago.

        Args:
            deadline_us: the next deadline of the core, if the replica is suspended.
        """
        self.now_us = now_us if deadline_us is None else max(self.now_us, min(now_us, deadline_us - 1))
        return self.now_us
