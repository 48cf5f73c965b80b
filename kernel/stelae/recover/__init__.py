"""Recovers tablets that have lost their majority: the survey of their replicas, the plan, and its execution."""
