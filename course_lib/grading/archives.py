"""Reads the notebooks out of a zip file that came from anybody, and nothing else.

A zip may say anything: members outside of its folder, links, a megabyte that unpacks to a
terabyte, zips in zips without an end. Nothing is written to the disk here, member by
member is read into memory up to a limit, and what is refused is said in a sentence.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import stat
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

from course_lib.grading.model import Problem

MAX_NOTEBOOK_BYTES = 50 << 20
MAX_TOTAL_BYTES = 200 << 20  # of one folder of an archive: one student's, as a rule
MAX_ARCHIVE_BYTES = 8 << 30
MAX_GROWTH = 50  # times its own size may an archive unpack to; notebooks shrink to a fifth
MAX_MEMBERS = 20_000
MAX_DEPTH = 3
_MOST_SAID = 10  # sentences about one folder
_PIECE = 1 << 20
_UTF8_FLAG = 0x800  # APPNOTE.TXT 4.4.4, bit 11: the name is UTF-8
_ENCRYPTED_FLAG = 0x1


@dataclasses.dataclass(frozen=True)
class Found:
    """A notebook in an archive or a folder.

    Attributes:
      place: where it was, parts separated by "/": folders, archives and names, NFC.
      data: the file's bytes; b"" where it is larger than `MAX_NOTEBOOK_BYTES`.
      received: its date.
      size: its size in bytes, as far as it was read.
    """

    place: str
    data: bytes
    received: datetime.datetime | None
    size: int


@dataclasses.dataclass
class Budget:
    """What may still be read, in bytes and members; `whole` is the archive's own budget."""

    left_bytes: int = MAX_TOTAL_BYTES
    left_members: int = 500
    whole: Budget | None = None

    def take(self, *, size: int = 0, members: int = 0) -> None:
        """Uses some of it up.

        Raises:
          Refused: there is none left.
        """
        self.left_bytes -= size
        self.left_members -= members
        if self.whole is not None and self.left_bytes >= 0 and self.left_members >= 0:
            self.whole.take(size=size, members=members)  # no more than is one's own
        if self.left_bytes < 0:
            raise Refused("it unpacks to too many bytes; the rest was not read.")
        if self.left_members < 0:
            raise Refused("it holds too many files; the rest was not read.")


class Refused(Exception):  # noqa: N818 - a sentence, not an error of the program
    """An archive is not read on; the message says why."""


def notebooks_in(
    data: bytes,
    place: str,
    problems: list[tuple[str, Problem]],
    *,
    depth: int = 1,
    received: datetime.datetime | None = None,
) -> Iterator[Found]:
    """The notebooks of a zip file, those of zip files in it too, down to `MAX_DEPTH`.

    Each folder of the outer archive has a budget of its own: what one student packed does not
    use up another's.

    Args:
      data: the archive.
      place: what it is called.
      problems: gets the place and a sentence for each thing that is not read.
      depth: how many archives it is in, itself included.
      received: the date of everything in it; None: its members' dates. Of a zip file in a zip file
        only the outer one was not made by a student, who can date its members at will.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
        sentence = f"{_last(place)} is not a zip file that opens: {error}."
        problems.append((place, Problem("bad-zip", sentence)))
        return
    most = min(MAX_ARCHIVE_BYTES, MAX_TOTAL_BYTES + MAX_GROWTH * len(data))
    whole, budgets = Budget(most, MAX_MEMBERS), dict[tuple[str, ...], Budget]()
    refused = Counter[tuple[str, ...]]()
    for member in members:
        name = name_of(member)
        parts = tuple(name.split("/"))
        folder = parts[:-1][:2] or parts
        budget = budgets.setdefault(folder, Budget(whole=whole))
        try:
            for found in _member(archive, member, place, budget, problems, depth):
                yield dataclasses.replace(found, received=received) if received else found
        except Refused as why:
            refused[folder] += 1
            if refused[folder] <= _MOST_SAID:
                sentence = f"{_last(place)}: {why}"
                problems.append((f"{place}/{name}", Problem("refused-member", sentence)))
            if whole.left_bytes < 0 or whole.left_members < 0:
                return


def _member(
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    place: str,
    budget: Budget,
    problems: list[tuple[str, Problem]],
    depth: int,
) -> Iterator[Found]:
    name = name_of(member)
    if member.is_dir() or ignored(name):
        return
    suffix = PurePosixPath(name).suffix.lower()
    if suffix not in (".ipynb", ".zip"):
        return
    budget.take(members=1)
    _check_name(name, member)
    inside = f"{place}/{name}"
    if suffix == ".zip" and depth >= MAX_DEPTH:
        raise Refused(f"{name!r} is a zip in a zip in a zip; it was not opened.")
    limit = MAX_NOTEBOOK_BYTES if suffix == ".ipynb" else MAX_TOTAL_BYTES
    content = _read(archive, member, name, limit, budget)
    if suffix == ".zip":
        date = _date(member)
        yield from notebooks_in(content, inside, problems, depth=depth + 1, received=date)
        return
    size = len(content)
    yield Found(inside, content if size <= limit else b"", _date(member), size)


def name_of(member: zipfile.ZipInfo) -> str:
    """A member's name as its sender saw it.

    Without the flag for UTF-8 Python reads cp437, although Windows writes the local code page
    (GBK in China) and macOS writes UTF-8 all the same.
    """
    name = member.filename
    if not member.flag_bits & _UTF8_FLAG:
        name = decoded(name.encode("cp437", "replace"), name)
    return unicodedata.normalize("NFC", name.replace("\\", "/"))


def decoded(raw: bytes, otherwise: str | None = None) -> str:
    """The text of a name of which nobody said how it is encoded; else what stands for it."""
    for encoding in ("utf-8", "gb18030"):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    return raw.decode("latin-1") if otherwise is None else otherwise


def ignored(name: str) -> bool:
    """Whether a file is a program's own: macOS's shadows, Jupyter's checkpoints, hidden files."""
    parts = PurePosixPath(name).parts
    return any(p == "__MACOSX" or (p.startswith(".") and p not in (".", "..")) for p in parts)


def _check_name(name: str, member: zipfile.ZipInfo) -> None:
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or ":" in parts[0] or "\0" in name:
        raise Refused(f"the name {name!r} leads out of the archive; it was not read.")
    mode = member.external_attr >> 16
    if mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode):
        raise Refused(f"{name!r} is a link or a device, not a file; it was not read.")
    if member.flag_bits & _ENCRYPTED_FLAG:
        raise Refused(f"{name!r} has a password; it was not read.")


def _read(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, limit: int, budget: Budget
) -> bytes:
    """The bytes of a member, one more than `limit` at most, whatever its header says."""
    pieces, size = [], 0
    try:
        with archive.open(member) as file:
            while size <= limit and (piece := file.read(min(_PIECE, limit + 1 - size))):
                size += len(piece)
                budget.take(size=len(piece))
                pieces.append(piece)
    except Refused:
        raise
    except Exception as error:  # of many types: zlib, struct, a method that Python does not know
        raise Refused(f"{name!r} cannot be unpacked: {error}.") from None
    return b"".join(pieces)


def _date(member: zipfile.ZipInfo) -> datetime.datetime | None:
    """A member's date in the machine's own time zone: a zip file says none."""
    try:
        moment = datetime.datetime(*member.date_time).astimezone()
    except (ValueError, OverflowError, OSError):
        return None
    return moment if moment.year > 1980 else None  # 1980-01-01 stands for "unknown"


def _last(place: str) -> str:
    return place.rsplit("/", 1)[-1]
