"""What runs of a corpus, drawn by a seed."""

from pathlib import Path

from tests.slt.draw import TRIGGERS, draw, folder_of, names_in
from tests.slt.run_file import Target, run_part

TARGET = Target("herdpy", is_strict=True, is_directory=False)


def test_names(corpus: Path) -> None:
    names = names_in(corpus, [])
    assert len(names) == 10
    assert not set(names) & set(TRIGGERS)
    assert names_in(corpus, ["select", "evidence"]) == ["evidence/in.test", "select1.test"]
    assert sorted(set(map(folder_of, names))) == ["evidence", "index/in", "random/expr", "select"]


def test_a_sample_has_as_many_records_as_it_is_to_have(corpus: Path) -> None:
    names = names_in(corpus, ["index", "random"])
    for sample, records_max in ((1, 1), (100, 100), (1_500, 200), (1_700, 400), (3_599, 450)):
        parts = draw(corpus, names, sample, 7, "herdpy")
        assert sum(part.count for part in parts) == sample
        assert max(part.count for part in parts) == records_max
    assert sum(part.count for part in draw(corpus, names, 100_000, 7, "herdpy")) == 3_600


def test_a_seed_draws_the_same_parts_and_another_one_others(corpus: Path) -> None:
    names = names_in(corpus, [])
    drawn = [draw(corpus, names, 1_000, seed, "herdpy") for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({draw(corpus, names, 1, seed, "herdpy")[-1].name for seed in range(10)}) > 1
    assert [part.name for part in drawn[0]][:2] == ["evidence/in.test", "select1.test"]


def test_a_part_runs_as_many_records_as_were_counted(corpus: Path) -> None:
    parts = draw(corpus, names_in(corpus, ["index"]), 300, 3, "herdpy")
    assert len({part.first for part in parts}) > 1
    for part in parts:
        assert run_part(corpus, part, TARGET).run == part.count
