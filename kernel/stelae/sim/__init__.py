"""Deterministic simulation of whole tablets: real cores and drivers, virtual everything else.

One integer seed draws all that happens: sizes, delays, loss, duplication, partitions, pauses,
crashes with torn and lost writes, full disks, clock jumps, and what the clients do. The code under
test is the product's own: consensus core, executor, log writer, apply, results, log engine. Only
their ports are virtual: disk, network, clock, threads.

A run has a *safety phase* with faults and a *liveness phase* after everything healed. Invariants
(``stelae.sim.invariants``, one file each) watch every step; the first violation ends the run, and
the seed reproduces it."""
