"""Durability: what a commit waits for."""

from enum import Enum


class Durability(Enum):
    """What a commit waits for: fsync, the operating system's buffer, or nothing."""

    SYNC = "sync"
    OS = "os"
    NONE = "none"
