"""Virtual time: order, ties, cancellation, and the digest that distinguishes runs."""

from __future__ import annotations

from stelae.sim.scheduler import Scheduler


def run_all(scheduler: Scheduler) -> int:
    count = 0
    while scheduler.run_one():
        count += 1
    return count


def test_events_run_by_time_and_ties_in_the_order_of_scheduling() -> None:
    scheduler, seen = Scheduler(), []
    for at_us, name in ((20, "c"), (10, "a"), (20, "d"), (10, "b")):
        scheduler.at(at_us, name, lambda name=name: seen.append(name))
    assert run_all(scheduler) == 4
    assert seen == ["a", "b", "c", "d"]
    assert scheduler.now_us == 20


def test_an_event_in_the_past_runs_now_and_time_never_goes_back() -> None:
    scheduler, times = Scheduler(), []
    scheduler.at(50, "late", lambda: scheduler.at(10, "past", lambda: times.append("past")))
    run_all(scheduler)
    assert times == ["past"]
    assert scheduler.now_us == 50


def test_a_cancelled_timer_neither_runs_nor_counts() -> None:
    scheduler, seen = Scheduler(), []
    timer = scheduler.after(5, "x", lambda: seen.append("x"))
    timer.cancel()
    timer.cancel()
    assert not scheduler.run_one()
    assert (seen, scheduler.events) == ([], 0)


def test_the_digest_depends_on_order_time_and_notes() -> None:
    def digest(*labels: str, note: str = "") -> str:
        scheduler = Scheduler()
        for label in labels:
            scheduler.after(1, label, lambda: scheduler.note(note))
        run_all(scheduler)
        return scheduler.digest()

    assert digest("a", "b") == digest("a", "b")
    assert len({digest("a", "b"), digest("b", "a"), digest("a"), digest("a", "b", note="n")}) == 4
