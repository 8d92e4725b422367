"""Damages: what can become of one file of a directory at rest, drawn for the files of a life."""

import random
import re
from collections.abc import Callable
from itertools import pairwise
from struct import unpack_from
from typing import NamedTuple

from bookie.runtime.memory_disk import MemoryDisk
from herdpy.log.frame import HEADER_BYTES, Frame, decode_frame, owner_of
from herdpy.log.log_files import LogFile
from herdpy.storage.manifest import Manifest, ManifestState
from tests.damage.life import MANIFEST, Content, Files, Life, life_of, with_more

DIRECTORY = None
"""Stands for a directory where a file was."""
Damaged = dict[str, bytes | None]
Part = tuple[str, int, int]
"""Path, offset and length."""
_BLOCKS = (512, 4096)
_ENDINGS = re.compile(r"\.(log|segment)$")


class Damage(NamedTuple):
    """What was done, and the files afterwards; missing folders are told apart from empty ones."""

    kind: str
    path: str
    """The file, or folder, that was damaged first."""
    says: str
    files: Damaged
    without_folder: str = ""
    """A folder that is not there, with all that is in it."""
    is_in_place: bool = False
    """Bytes within the file's length were changed: an error has to name file and offset."""
    is_harmless: bool = False
    """A crash may leave this: nothing may be called damaged."""
    moment: Content | None = None
    """What is right of a whole directory put back; None: what was right before."""


class LogFrame(NamedTuple):
    path: str
    offset: int
    end: int
    sequence: int
    durable_sequence: int


def listed_of(files: Files) -> ManifestState:
    disk = MemoryDisk()
    disk.make_directory("default")
    file = disk.open(MANIFEST, create=True)
    file.write_at(0, files[MANIFEST])
    file.close()
    return Manifest.read(disk, MANIFEST)


def listed_log(files: Files) -> list[LogFile]:
    """Return the listed log files, the oldest first."""
    return [LogFile("default/log", *listed) for listed in listed_of(files).listed_log_files]


def frames_of(files: Files) -> list[LogFrame]:
    """Return the valid frames of the listed log files, in their order."""
    listed = listed_of(files)
    found: list[LogFrame] = []
    for file in listed_log(files):
        path = file.path
        offset = 0
        while isinstance(
            frame := decode_frame(
                files[path],
                offset,
                log_id=listed.log_id,
                file_id=file.file_id,
                file_number=file.number,
                sequence=None,
            ),
            Frame,
        ):
            place = (path, offset, frame.end, frame.sequence, frame.durable_sequence)
            found.append(LogFrame(*place))
            offset = frame.end
    return found


def parts_of(files: Files) -> list[Part]:
    """Return the pages and bitmaps that are listed, the frames of the log, and the edits."""
    listed = listed_of(files)
    pages = [page for item in listed.tables.values() for page in item.pages]
    pages += [p for pin in listed.pins.values() for item in pin.tables.values() for p in item.pages]
    bitmaps = [page.bitmap for page in pages if page.bitmap is not None]
    in_segments = {(each.segment, each.offset, each.length) for each in (*pages, *bitmaps)}
    found = [(f"default/segments/{n:08d}.segment", *place) for n, *place in sorted(in_segments)]
    parts: list[Part] = [(path, offset, length) for path, offset, length in found]
    parts += [(frame.path, frame.offset, frame.end - frame.offset) for frame in frames_of(files)]
    ends = [32]
    data = files[MANIFEST]
    while ends[-1] + 12 <= len(data):
        ends.append(ends[-1] + 12 + unpack_from("<I", data, ends[-1] + 4)[0])
    return parts + [(MANIFEST, start, end - start) for start, end in pairwise(ends)]


def _used(data: bytes) -> int:
    return len(data.rstrip(b"\0"))


def _put(data: bytes, offset: int, piece: bytes) -> bytes:
    piece = piece[: len(data) - offset]
    return data[:offset] + piece + data[offset + len(piece) :]


class _Draw:
    """One draw: the life, and how its files come to harm."""

    def __init__(self, life: Life, rng: random.Random) -> None:
        self.life = life
        self.rng = rng
        self.files = life.files

    def victim(self) -> str:
        """Return a file, those that matter most often first."""
        paths = sorted(self.files)
        named = [path for path in paths if _ENDINGS.search(path)] or paths
        return self.rng.choice((self.rng.choice(paths), self.rng.choice(named), MANIFEST))

    def damage(self, kind: str, path: str, says: str, changed: Damaged, **facts: bool) -> Damage:
        return Damage(kind, path, says, {**self.files, **changed}, **facts)

    def _in_place(self, kind: str, path: str, offset: int, piece: bytes, says: str) -> Damage:
        data = _put(self.files[path], offset, piece)
        said = f"{says} at {offset} of {path}"
        return self.damage(kind, path, said, {path: data}, is_in_place=True)

    def _block(self) -> tuple[str, int, int]:
        """Return path, offset and length of a block that is not behind what a file holds."""
        path = self.victim()
        length = self.rng.choice(_BLOCKS)
        blocks = max(1, -(-_used(self.files[path]) // length))
        return path, self.rng.randrange(blocks) * length, length

    # --- kinds -----------------------------------------------------------------------------------

    def flip(self) -> Damage:
        path = self.victim()
        data = self.files[path]
        count = _used(data) if self.rng.random() < 0.9 else len(data)
        offset = self.rng.randrange(max(count, 1))
        piece = bytes(byte ^ 1 << self.rng.randrange(8) for byte in data[offset : offset + 1])
        return self._in_place("flip", path, offset, piece, "a flipped bit")

    def cut(self) -> Damage:
        path = self.victim()
        data = self.files[path]
        ends = [offset for where, offset, _ in parts_of(self.files) if where == path]
        length = self.rng.choice([*ends, self.rng.randrange(len(data) + 1), _used(data) // 2, 0])
        return self.damage("cut", path, f"{path} cut to {length}", {path: data[:length]})

    def zeroed_block(self) -> Damage:
        path, offset, length = self._block()
        return self._in_place("zeroed block", path, offset, bytes(length), "zeros")

    def zeroed_part(self) -> Damage:
        path, offset, length = self.rng.choice(parts_of(self.files))
        return self._in_place("zeroed part", path, offset, bytes(length), "a part of zeros")

    def swapped_blocks(self) -> Damage:
        """Put two blocks of one file in each other's place."""
        path, offset, length = self._block()
        data = self.files[path]
        other = self.rng.randrange(max(1, _used(data) // length)) * length
        first, second = data[offset : offset + length], data[other : other + length]
        data = _put(_put(data, offset, second), other, first)
        says = f"blocks at {offset} and {other} of {path} swapped"
        return self.damage("swapped blocks", path, says, {path: data}, is_in_place=True)

    def swapped_parts(self) -> Damage:
        """Put two pages, bitmaps, frames or edits in each other's place, alike if there are any."""
        parts = parts_of(self.files)
        if self.rng.random() < 0.6:
            parts = [part for part in parts if part[0].endswith(".segment")] or parts
        pairs = [
            (first, second)
            for index, first in enumerate(parts)
            for second in parts[:index]
            if first[2] == second[2] and self._begin(first) == self._begin(second)
        ]
        of_two_files = [pair for pair in pairs if pair[0][0] != pair[1][0]]
        at_one_offset = [pair for pair in of_two_files if pair[0][1] == pair[1][1]]
        choices = [each for each in (pairs, of_two_files, at_one_offset) if each]
        any_two = (self.rng.choice(parts), self.rng.choice(parts))
        first, second = self.rng.choice(self.rng.choice(choices)) if choices else any_two
        files: Damaged = dict(self.files)
        for to, source in ((first, second), (second, first)):
            data = files[to[0]] or b""
            piece = self.files[source[0]][source[1] :][: source[2]]
            files[to[0]] = _put(data, to[1], piece)
        says = f"parts {first} and {second} swapped"
        return self.damage("swapped parts", first[0], says, files, is_in_place=True)

    def _begin(self, part: Part) -> bytes:
        """Return what a part begins with: its kind, and of a page its length and rows."""
        return self.files[part[0]][part[1] : part[1] + 20]

    def misdirected_block(self) -> Damage:
        """Write a block of one file where one of another is."""
        path, offset, length = self._block()
        source, start, _ = self._block()
        piece = self.files[source][start : start + length]
        return self._in_place("misdirected block", path, offset, piece, f"{start} of {source}")

    def older_copy(self) -> Damage:
        path = MANIFEST if self.rng.random() < 0.4 else self.victim()
        older = self.life.older(path)
        data = self.rng.choice(older) if older else self.files[path]
        return self.damage("older copy", path, f"an older copy of {path}", {path: data})

    def of_another(self) -> Damage:
        """Put in a file of another database, or of a copy of this one that went on by itself."""
        path = self.rng.choice((MANIFEST, MANIFEST, self.victim(), listed_log(self.files)[-1].path))
        if self.rng.random() < 0.5:
            moment = self.rng.choice(self.life.moments)
            other, which = with_more(moment.files, self.rng.randrange(4)), "a copy that went on"
        else:
            neighbour = life_of(self.life.seed - 1)
            moments = [moment.files for moment in neighbour.moments]
            others = (moments[0], moments[0], neighbour.files, self.rng.choice(moments))
            other, which = self.rng.choice(others), "another database"
        named = [name for name in other if name.rpartition("/")[0] == path.rpartition("/")[0]]
        name = path if path in other else self.rng.choice(named or [MANIFEST])
        says = f"{name} of {which} as {path}"
        return self.damage("of another database", path, says, {path: other[name]})

    def missing(self) -> Damage:
        path = self.victim()
        files: Damaged = {name: data for name, data in self.files.items() if name != path}
        return Damage("missing", path, f"{path} is missing", files)

    def doubled(self) -> Damage:
        """Copy a file to another name, or its content behind itself."""
        path = self.victim()
        if self.rng.random() < 0.3:
            data = self.files[path] * 2
            return self.damage("doubled", path, f"{path} twice in itself", {path: data})
        folder, _, name = path.rpartition("/")
        number = f"{self.rng.randrange(1, 12):08d}"
        names = [
            f"{number}.log",
            f"spare-{number}.log",
            f"{number}.segment",
            f"{name}.new",
            f"{name}~",
        ]
        copy = f"{folder}/{self.rng.choice(names)}" if folder else f"default/{names[0]}"
        says = f"{path} also as {copy}"
        return self.damage("doubled", path, says, {copy: self.files[path]})

    def exchanged(self) -> Damage:
        """Put two files of one folder in each other's place."""
        path = self.victim()
        folder = path.rpartition("/")[0]
        others = [name for name in self.files if name.rpartition("/")[0] == folder]
        other = self.rng.choice(others)
        changed: Damaged = {path: self.files[other], other: self.files[path]}
        return self.damage("exchanged", path, f"{path} and {other} exchanged", changed)

    def directory(self) -> Damage:
        path = self.rng.choice(
            (self.victim(), f"default/{self.rng.choice(('log', 'segments'))}/mine")
        )
        return self.damage(
            "directory in its place", path, f"{path} is a directory", {path: DIRECTORY}
        )

    def folder(self) -> Damage:
        """Take a folder away, or put a file in its place."""
        folder = self.rng.choice(("default", "default/log", "default/segments", "default/temp"))
        files: Damaged = {
            path: data for path, data in self.files.items() if not path.startswith(f"{folder}/")
        }
        says = f"the folder {folder} is missing"
        if self.rng.random() < 0.5:
            files[folder] = b"a file"
            says = f"{folder} is a file"
        return Damage("folder", folder, says, files, without_folder=folder)

    def torn_tail(self) -> Damage:
        """Take away what a power failure may: of a frame at the end that nothing vouches for."""
        unproven = unproven_frames(self.life)
        if not unproven:
            return Damage("torn tail", "", "no tail", dict(self.files), is_harmless=True)
        frame = self.rng.choice((unproven[-1], self.rng.choice(unproven)))
        data, length = self.files[frame.path], frame.end - frame.offset
        if self.rng.random() < 0.4:
            kept = self.rng.randrange(length)
            data = _put(data, frame.offset + kept, bytes(len(data)))
        else:
            data = _put(data, frame.offset, bytes(min(72, length)))
            data = _put(data, frame.end, bytes(len(data)))
        says = f"{frame.path} torn in the frame at {frame.offset}"
        return self.damage("torn tail", frame.path, says, {frame.path: data}, is_harmless=True)

    def put_back(self) -> Damage:
        """Put the whole directory back to what it was: nothing in it can say so."""
        moment = self.rng.choice(self.life.moments)
        files: Damaged = dict(moment.files)
        return Damage("directory put back", "", "all as it was", files, moment=moment.content)


KINDS: dict[str, Callable[[_Draw], Damage]] = {
    "flip": _Draw.flip,
    "cut": _Draw.cut,
    "zeroed block": _Draw.zeroed_block,
    "zeroed part": _Draw.zeroed_part,
    "swapped blocks": _Draw.swapped_blocks,
    "swapped parts": _Draw.swapped_parts,
    "misdirected block": _Draw.misdirected_block,
    "older copy": _Draw.older_copy,
    "of another database": _Draw.of_another,
    "missing": _Draw.missing,
    "doubled": _Draw.doubled,
    "exchanged": _Draw.exchanged,
    "directory in its place": _Draw.directory,
    "folder": _Draw.folder,
    "directory put back": _Draw.put_back,
    "torn tail": _Draw.torn_tail,
}
"""By name; "damaged backup" comes beside them."""


def draw(life: Life, rng: random.Random, kind: str) -> Damage:
    """Return a damage of this kind."""
    return KINDS[kind](_Draw(life, rng))


def allowed(life: Life, damage: Damage) -> list[Content]:
    """Return the right answers: one, and where the end of the log cannot be known, two.

    The frames at the end that no other position vouches for can be lost without a trace: then
    what was committed before the first of them that is damaged is right as well.
    """
    if damage.moment is not None:
        return [damage.moment]
    newest = newest_frames(life)
    found = damage.files.get(newest[0].path) or b"" if newest else b""
    if newest and _is_anothers(life, newest[0].path, found):
        return [life.content]
    intact = [f for f in newest if found[f.offset : f.end] == life.files[f.path][f.offset : f.end]]
    done = listed_of(life.files).checkpoint_lsn[1]  # is not read any more
    broken = [f.sequence for f in newest if f not in intact and f.sequence > done]
    if not broken or min(broken) <= known_durable(life, intact):
        return [life.content]
    return [life.content, life.state_at(min(broken) - 1)]


def _is_anothers(life: Life, path: str, data: bytes) -> bool:
    """Return whether a log file is seen to be of another database, or of a copy of this one.

    A copy has the log's id, and other ids of files: the first frame's checksum proves it. Frames
    of another log prove it by two of them, one behind the other, with one id. A lower number is no
    proof: a spare may have brought such frames along.
    """
    listed = listed_of(life.files)
    number, file_id = next(
        (file.number, file.file_id) for file in listed_log(life.files) if file.path == path
    )
    owner = owner_of(data[:HEADER_BYTES])
    if owner is None or owner.id == file_id or owner.file_number < number:
        return False
    behind = owner_of(data[owner.end : owner.end + HEADER_BYTES])
    if behind is not None and behind.id == owner.id:
        return True
    frame = decode_frame(
        data,
        0,
        log_id=listed.log_id,
        file_id=None,
        file_number=owner.file_number,
        sequence=None,
    )
    return isinstance(frame, Frame)


def newest_frames(life: Life) -> list[LogFrame]:
    """Return the frames of the last log file that has any."""
    frames = frames_of(life.files)
    return [frame for frame in frames if frame.path == frames[-1].path]


def known_durable(life: Life, frames: list[LogFrame]) -> int:
    """Return the highest sequence that the manifest, or one of these frames, calls durable."""
    listed = listed_of(life.files)
    return max(
        listed.durable_sequence,
        listed.checkpoint_lsn[1],
        *(first - 1 for _, first, _ in listed.listed_log_files),
        *(frame.durable_sequence for frame in frames),
    )


def unproven_frames(life: Life) -> list[LogFrame]:
    """Return the frames at the end of the log that only their own checksums vouch for."""
    newest = newest_frames(life)
    known = known_durable(life, newest)
    return [frame for frame in newest if frame.sequence > known]
