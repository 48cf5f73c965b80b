"""The YCSB workloads: their shares, the shape of their draws, and what is drawn while records come in."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from stelae_bench.ycsb import (
    CONSTANT,
    FIELD_BYTES,
    FIELDS,
    SCAN_ROWS_MAX,
    WORKLOADS,
    Chooser,
    Population,
    Values,
    YcsbOperation,
    YcsbStep,
    Zipfian,
    fnv64,
    key_of,
)

DRAWS = 60_000


def steps(letter: str, count: int = DRAWS, *, records: int = 1000, seed: int = 1) -> list[YcsbStep]:
    chooser = Chooser(WORKLOADS[letter], Population(records), seed)
    return [chooser.next() for _ in range(count)]


def zipf(items: int) -> list[float]:
    """The distribution that is to be met, added up the slow way."""
    weights = [(i + 1) ** -CONSTANT for i in range(items)]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("items", [1, 2, 3])
def test_among_few_items_none_is_drawn_that_is_not_there(items: int) -> None:
    zipfian = Zipfian(random.Random(1), items)
    assert {zipfian.draw() for _ in range(2000)} == set(range(items))


def test_the_first_two_items_come_as_often_as_zipf_says_and_the_others_nearly() -> None:
    items = 1000
    zipfian = Zipfian(random.Random(7), items)
    counts = Counter(zipfian.draw() for _ in range(DRAWS))
    wanted = zipf(items)
    for item in (0, 1):  # drawn exactly; what follows is the approximation of Gray et al.
        assert counts[item] / DRAWS == pytest.approx(wanted[item], rel=0.05)
    for low, high in ((2, 10), (10, 100), (100, 1000)):
        share = sum(counts[item] for item in range(low, high)) / DRAWS
        assert share == pytest.approx(sum(wanted[low:high]), rel=0.12)


def test_a_tenth_of_the_items_gets_about_two_thirds_of_all_draws_and_a_uniform_draw_would_not() -> None:
    zipfian = Zipfian(random.Random(3), 1000)
    popular = sum(zipfian.draw() < 100 for _ in range(DRAWS)) / DRAWS
    assert 0.62 < popular < 0.75


def test_growing_step_by_step_draws_the_same_as_starting_large() -> None:
    grown, whole = Zipfian(random.Random(5), 10), Zipfian(random.Random(5), 500)
    for items in (11, 100, 500):
        grown.grow(items)
    assert [grown.draw() for _ in range(1000)] == [whole.draw() for _ in range(1000)]


def test_the_known_sum_of_the_scrambled_draw_agrees_with_its_integral() -> None:
    """Euler and Maclaurin: the sum over n items less that over m is the integral between them, and half the ends."""
    small, large = 100_000, 10_000_000_000
    head = sum((i + 1) ** -CONSTANT for i in range(small))
    integral = (large ** (1 - CONSTANT) - small ** (1 - CONSTANT)) / (1 - CONSTANT)
    ends = (large**-CONSTANT - small**-CONSTANT) / 2
    from stelae_bench import ycsb

    assert head + integral + ends == pytest.approx(ycsb._SCRAMBLED_ZETA, rel=1e-9)


def test_the_hash_of_numbers_is_fnv_over_their_eight_bytes_without_a_sign() -> None:
    value = 0xCBF29CE484222325
    for byte in (1234567).to_bytes(8, "little"):
        value = ((value ^ byte) * 1099511628211) % 2**64
    assert fnv64(1234567) == min(value, 2**64 - value)
    assert len({fnv64(number) for number in range(10_000)}) == 10_000
    assert key_of(0) == "user6284781860667377211", "as the original's first record"


@pytest.mark.parametrize(
    ("letter", "shares"),
    [
        ("A", {YcsbOperation.READ: 0.5, YcsbOperation.UPDATE: 0.5}),
        ("B", {YcsbOperation.READ: 0.95, YcsbOperation.UPDATE: 0.05}),
        ("C", {YcsbOperation.READ: 1.0}),
        ("D", {YcsbOperation.READ: 0.95, YcsbOperation.INSERT: 0.05}),
        ("E", {YcsbOperation.SCAN: 0.95, YcsbOperation.INSERT: 0.05}),
        ("F", {YcsbOperation.READ: 0.5, YcsbOperation.READ_MODIFY_WRITE: 0.5}),
    ],
)
def test_a_workload_mixes_its_operations_as_published(letter: str, shares: dict[YcsbOperation, float]) -> None:
    found = Counter(step.kind for step in steps(letter))
    assert set(found) == set(shares)
    for kind, share in shares.items():
        assert found[kind] / DRAWS == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("letter", ["A", "B", "C", "E", "F"])
def test_popular_records_are_few_and_lie_anywhere(letter: str) -> None:
    counts = Counter(step.record for step in steps(letter) if step.kind is not YcsbOperation.INSERT)
    drawn = counts.total()
    hot = [record for record, _ in counts.most_common(20)]
    assert sum(counts[record] for record in hot) / drawn > 0.13, "a uniform draw gives 0.02"
    # The most popular item of ten thousand million comes once in 26.5 draws.
    assert counts[hot[0]] / drawn == pytest.approx(1 / 26.469, rel=0.15)
    assert max(hot) - min(hot) > 500
    assert all(0 <= record < 1000 for record in counts)


def test_workload_d_reads_what_was_inserted_last() -> None:
    population = Population(1000)
    chooser = Chooser(WORKLOADS["D"], population, 1)
    ages: Counter[int] = Counter()
    for _ in range(20_000):
        step = chooser.next()
        if step.kind is YcsbOperation.INSERT:
            population.ack(step.record)
        else:
            ages[population.acked - 1 - step.record] += 1
    assert population.acked > 1500
    assert [age for age, _ in ages.most_common(2)] == [0, 1]
    assert sum(ages[age] for age in range(100)) / ages.total() > 0.55


def test_scans_of_workload_e_are_of_one_to_a_hundred_rows_each_length_as_likely() -> None:
    lengths = Counter(step.rows for step in steps("E") if step.kind is YcsbOperation.SCAN)
    assert set(lengths) == set(range(1, SCAN_ROWS_MAX + 1))
    assert max(lengths.values()) < 2 * min(lengths.values())


def test_a_record_is_drawn_only_once_it_and_all_before_it_are_acknowledged() -> None:
    population = Population(2)
    first, second, third = (population.begin() for _ in range(3))
    assert (first, second, third, population.acked) == (2, 3, 4, 2)
    population.ack(third)
    population.ack(second)
    assert population.acked == 2
    population.ack(first)
    assert population.acked == 5


def test_the_same_seed_gives_the_same_operations_and_another_seed_others() -> None:
    assert steps("A", 500, seed=4) == steps("A", 500, seed=4)
    assert steps("A", 500, seed=4) != steps("A", 500, seed=5)


def test_records_have_ten_fields_of_a_hundred_printable_characters() -> None:
    record = Values(1).record()
    assert list(record) == [f"field{n}" for n in range(FIELDS)]
    assert all(len(value) == FIELD_BYTES and value.isprintable() for value in record.values())
    assert record == Values(1).record()
    assert {Values(seed).name() for seed in range(200)} == set(record)
