"""Deterministic simulation of masters: production's masters, and models of tablet servers, tablets and clients.

One seed determines everything in a run."""
