"""Deterministic simulation of whole tablets: the product's code on virtual disks, networks, clocks and threads.

One integer seed determines everything in a run: sizes, delays, message loss and duplication,
partitions, pauses, crashes with torn and lost writes, full disks, clock jumps, and the operations of
the clients. The code under test is the code of production: consensus core, executor, log writer,
apply, exactly-once results, log engine and store. Only its ports are virtual: disk, network, clock
and threads.

A run has a *safety phase* with faults, and then a *liveness phase* without faults. The invariants
(``stelae.sim.invariants``, one file each) check every step. The first violation ends the run, and
the seed reproduces it."""
