"""Which parts of which files run: the whole of some folders, and a sample of the others.

A sample is drawn by a seed: files in a drawn order, and of each the records from a drawn one on, so
that few records meet many files: of each only so many that it takes sixty, and at least 200. Where
there are fewer files, or the sample is most of what there is, it is more of each, up to all.
"""

import random
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path

from tests.slt.records import read_records
from tests.slt.run_file import Part

SAMPLED = ("index", "random")
"""Folders of which a sample runs; all others are small, and run whole."""
TRIGGERS = ("evidence/slt_lang_createtrigger.test", "evidence/slt_lang_droptrigger.test")
"""Files that are not run, for herdpy has no triggers."""
_FILES = 60
_RECORDS_MIN = 200


def folder_of(name: str) -> str:
    """Return the folder that a file is counted in: "select", "evidence", "index/between", …"""
    parts = Path(name).parts
    return "/".join(parts[:-1][:2]) or "select"


def names_in(corpus: Path, only: Iterable[str]) -> list[str]:
    """Return the files of the corpus in order, of those that `only` begins the names of some."""
    names = sorted(path.relative_to(corpus).as_posix() for path in corpus.rglob("*.test"))
    prefixes = tuple(only)
    return [name for name in names if name.startswith(prefixes or "") and name not in TRIGGERS]


def draw(corpus: Path, names: list[str], sample: int, seed: int, engine: str) -> list[Part]:
    """Return the parts to run; a seed draws the same ones everywhere.

    sample: records of SAMPLED folders in all, of those that run for the engine; as many as there
    are, if these are fewer.
    """
    count_of = cache(partial(_records_in, corpus, engine))
    whole = [Part(name, 0, count_of(name)) for name in names if not name.startswith(SAMPLED)]
    order = [name for name in names if name.startswith(SAMPLED)]
    random.Random(seed).shuffle(order)
    records_max = max(_RECORDS_MIN, -(-sample // _FILES))
    parts = _take(order, count_of, sample, records_max, random.Random(seed))
    while sum(part.count for part in parts) < sample and any(
        count_of(name) > records_max for name in order
    ):
        records_max *= 2
        parts = _take(order, count_of, sample, records_max, random.Random(seed))
    return whole + parts


def _take(
    order: list[str],
    count_of: Callable[[str], int],
    sample: int,
    records_max: int,
    rng: random.Random,
) -> list[Part]:
    """Take at most so many records of each file, until there are as many as the sample has."""
    parts: list[Part] = []
    left = sample
    for name in order:
        if left == 0:
            break
        there = count_of(name)
        count = min(there, records_max, left)
        parts.append(Part(name, rng.randrange(there - count + 1), count))
        left -= count
    return parts


def _records_in(corpus: Path, engine: str, name: str) -> int:
    records = read_records((corpus / name).read_text(), engine)
    return sum(not record.is_skipped for record in records)
