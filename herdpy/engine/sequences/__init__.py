"""Sequences: how their values are given away, reserved and set."""
