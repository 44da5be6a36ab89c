"""Intake: whoever handed in something is found, under their own name, and nothing else is read."""

from __future__ import annotations

import io
import os
import random
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from course_lib.diagnostics import CourseError
from course_lib.grading import archives, intake
from course_lib.grading.intake import attempt_date, collect, owner_of

NB = b'{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'


def zipped(members: Mapping[str, bytes], *, year: int = 0) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, (year, 5, 4, 10, 0, 0)) if year else name
            archive.writestr(info, data)
    return packed.getvalue()


def lay_out(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def found(folder: Path, tmp_path: Path) -> dict[str, list[str]]:
    students = collect(folder, store=tmp_path / "store")
    return {s.name: [p.place.rsplit("/", 1)[-1] for p in s.papers] for s in students}


@pytest.mark.parametrize(
    ("name", "loose", "owner"),
    [
        ("Ada Lovelace", False, ("Ada Lovelace", "")),
        ("Ada Lovelace_12345_assignsubmission_file_", False, ("Ada Lovelace", "12345")),
        ("李小龙_998_assignsubmission_file_", False, ("李小龙", "998")),
        ("Ada_9_assignsubmission_file_03_transforms.ipynb", True, ("Ada", "9")),
        ("lovelaceada_12345_67890_03_transforms-1.ipynb", True, ("lovelaceada", "12345")),
        ("lovelaceada_LATE_12345_67890_05.ipynb", True, ("lovelaceada", "12345")),
        ("HW 3_ada01_attempt_2026-05-04-10-00-00_03.ipynb", True, ("ada01", "")),
        ("Ada_Lovelace_03_transforms.ipynb", True, ("Ada Lovelace", "")),
        ("03_transforms_Ada (1).ipynb", True, ("Ada", "")),
        ("03_transforms-王芳.ipynb", True, ("王芳", "")),
        ("03_transforms.ipynb", True, ("", "")),
        ("O'Brien-Smith.zip", False, ("O'Brien-Smith", "")),
    ],
)
def test_a_name_says_whose_it_is(name: str, loose: bool, owner: tuple[str, str]) -> None:
    assert owner_of(name, loose=loose) == owner


def test_the_usual_shapes(tmp_path: Path) -> None:
    folder = lay_out(
        tmp_path / "in",
        {
            "Ada/03_transforms.ipynb": NB,
            "Ada/deep/er/05_asynchronous_copies.ipynb": NB,
            "Ada/.ipynb_checkpoints/03_transforms-checkpoint.ipynb": NB,
            "Bob_03_transforms.ipynb": NB,
            "Cyd_77_assignsubmission_file_/x.ipynb": NB,
            "王芳.zip": zipped({"作业/03_transforms.ipynb": NB, "__MACOSX/._a.ipynb": b"x"}),
            "Dot.zip": zipped({"in.zip": zipped({"a/b.ipynb": NB})}),
            "Eve/notes.pdf": b"%PDF",
        },
    )
    assert found(folder, tmp_path) == {
        "Ada": ["03_transforms.ipynb", "05_asynchronous_copies.ipynb"],
        "Bob": ["Bob_03_transforms.ipynb"],
        "Cyd (77)": ["x.ipynb"],
        "Dot": ["b.ipynb"],
        "Eve": [],
        "王芳": ["03_transforms.ipynb"],
    }


def test_one_zip_of_a_whole_class(tmp_path: Path) -> None:
    class_zip = zipped(
        {
            "hand-ins/Ada_1_assignsubmission_file_/03_transforms.ipynb": NB,
            "hand-ins/Bob_2_assignsubmission_file_/Bob.zip": zipped({"x.ipynb": NB}),
        }
    )
    folder = lay_out(tmp_path / "in", {"all.zip": class_zip})
    assert found(folder, tmp_path) == {"Ada (1)": ["03_transforms.ipynb"], "Bob (2)": ["x.ipynb"]}
    assert found(folder / "all.zip", tmp_path) == found(folder, tmp_path)


def test_one_student_alone_is_not_taken_for_a_class(tmp_path: Path) -> None:
    files = {"Ada/03/03_transforms.ipynb": NB, "Ada/05/05_asynchronous_copies.ipynb": NB}
    folder = lay_out(tmp_path / "in", files)
    assert list(found(folder, tmp_path)) == ["Ada"]


def test_files_without_a_name_are_those_of_the_folder(tmp_path: Path) -> None:
    folder = lay_out(
        tmp_path / "Ada", {"03_transforms.ipynb": NB, "05_asynchronous_copies.ipynb": NB}
    )
    assert list(found(folder, tmp_path)) == ["Ada"]


def test_two_of_one_name_are_two(tmp_path: Path) -> None:
    files = {f"Li Wei_{n}_assignsubmission_file_/a.ipynb": NB for n in (1, 2)}
    folder = lay_out(tmp_path / "in", files)
    assert list(found(folder, tmp_path)) == ["Li Wei (1)", "Li Wei (2)"]


def test_names_of_old_programs_are_read_as_they_were_meant(tmp_path: Path) -> None:
    """Windows in China writes GBK without saying so; Python would read boxes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        info = zipfile.ZipInfo("x")
        info.filename = "李小龙/a.ipynb".encode("gb18030").decode("cp437")
        archive.writestr(info, NB)
    raw = packed.getvalue()
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        [member] = archive.infolist()
        member.filename = "李小龙/a.ipynb".encode("gb18030").decode("cp437")
        member.flag_bits &= ~0x800
        assert archives.name_of(member) == "李小龙/a.ipynb"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("../../evil.ipynb", "leads out"),
        ("/etc/evil.ipynb", "leads out"),
        ("C:/evil.ipynb", "leads out"),
        ("a/../../evil.ipynb", "leads out"),
        ("..\\evil.ipynb", "leads out"),
    ],
)
def test_a_member_outside_of_the_archive_is_refused(tmp_path: Path, name: str, says: str) -> None:
    folder = lay_out(tmp_path / "in", {"Ada.zip": zipped({name: NB, "ok.ipynb": NB})})
    [student] = collect(folder, store=tmp_path / "store")
    assert [p.place for p in student.papers] == ["Ada.zip/ok.ipynb"]
    [problem] = student.problems
    assert says in problem.sentence
    everything = {p.name for p in tmp_path.rglob("*") if p.is_file()}
    assert not any("evil" in name for name in everything)


def test_a_link_in_an_archive_is_refused(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        info = zipfile.ZipInfo("passwd.ipynb")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    [student] = collect(
        lay_out(tmp_path / "in", {"Ada.zip": packed.getvalue()}), store=tmp_path / "store"
    )
    assert student.papers == ()
    assert "link" in student.problems[0].sentence


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.ipynb").write_bytes(NB)
    folder = lay_out(tmp_path / "in", {"Ada/a.ipynb": NB})
    os.symlink(tmp_path / "secret.ipynb", folder / "Ada" / "b.ipynb")
    [student] = collect(folder, store=tmp_path / "store")
    assert [p.place for p in student.papers] == ["Ada/a.ipynb"]
    assert "link" in student.problems[0].sentence


def test_a_bomb_costs_its_owner_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_NOTEBOOK_BYTES", 1 << 20)
    monkeypatch.setattr(archives.Budget, "__init__", _small_budget)
    bomb = {f"Eve/{n}.ipynb": b"0" * (2 << 20) for n in range(9)}
    folder = lay_out(tmp_path / "in", {"class.zip": zipped({**bomb, "Ada/a.ipynb": NB})})
    students = {s.name: s for s in collect(folder, store=tmp_path / "store")}
    assert len(students["Ada"].papers) == 1
    assert not students["Ada"].problems
    assert len(students["Eve"].papers) < 9
    assert "too many bytes" in students["Eve"].problems[0].sentence


def _small_budget(self: archives.Budget, *_: int, whole: archives.Budget | None = None) -> None:
    self.left_bytes, self.left_members = (4 << 20, 500) if whole else (1 << 30, 1000)
    self.whole = whole


def test_zips_in_zips_have_an_end(tmp_path: Path) -> None:
    data = zipped({"a.ipynb": NB})
    for _ in range(5):
        data = zipped({"in.zip": data})
    [student] = collect(lay_out(tmp_path / "in", {"Ada.zip": data}), store=tmp_path / "store")
    assert student.papers == ()
    assert "zip in a zip" in student.problems[0].sentence


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 no", b"not a zip at all"])
def test_a_broken_zip_is_said_and_the_others_are_read(tmp_path: Path, data: bytes) -> None:
    folder = lay_out(tmp_path / "in", {"Ada.zip": data, "Bob/a.ipynb": NB})
    students = {s.name: s for s in collect(folder, store=tmp_path / "store")}
    assert len(students["Bob"].papers) == 1
    assert students["Ada"].papers == ()


def test_a_notebook_of_200_mb_is_not_read(tmp_path: Path) -> None:
    folder = lay_out(tmp_path / "in", {"Ada/a.ipynb": NB})
    with (folder / "Ada" / "big.ipynb").open("wb") as file:
        file.truncate(200 << 20)
    [student] = collect(folder, store=tmp_path / "store")
    big = next(p for p in student.papers if p.place.endswith("big.ipynb"))
    assert big.file is None
    assert big.size == 200 << 20


def test_nothing_at_all_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(CourseError, match="no notebook"):
        collect(tmp_path / "in", store=tmp_path / "store")
    with pytest.raises(CourseError, match="There is no"):
        collect(tmp_path / "nowhere", store=tmp_path / "store")


def received(folder: Path, tmp_path: Path) -> dict[str, int]:
    """The year that each student's work is dated."""
    return {
        s.name: min(p.received.year for p in s.papers if p.received)
        for s in collect(folder, store=tmp_path / "store")
    }


def test_only_blackboard_dates_work_by_its_name(tmp_path: Path) -> None:
    """A student names the file, the platform what is before or around it."""
    early = "HW_ada_attempt_2001-05-04-10-00-01_03.ipynb"
    honest = {early: NB, "HW_bob_attempt_2002-05-04-10-00-01_03.ipynb": NB}
    assert received(lay_out(tmp_path / "bb", honest), tmp_path) == {"ada": 2001, "bob": 2002}
    for number, place in enumerate(
        (
            f"Ada Lovelace_12_assignsubmission_file_/{early}",
            f"Ada Lovelace/{early}",
            f"lovelaceada_12_345_{early}",
            f"Ada Lovelace.zip/{early}",
            early,
        )
    ):
        first, _, inner = place.partition(".zip/")
        data = {f"{first}.zip": zipped({inner: NB})} if inner else {place: NB}
        folder = lay_out(tmp_path / f"in{number}", {**data, "Bob/03_transforms.ipynb": NB})
        years = received(folder, tmp_path)
        assert 2001 not in years.values(), place
        assert len(years) == 2, place


def test_who_packs_a_zip_does_not_date_it_where_the_platform_did(tmp_path: Path) -> None:
    inner = zipped({"03.ipynb": NB}, year=2001)
    outer = zipped({"Ada_1_assignsubmission_file_/work.zip": inner,
                    "Bob_2_assignsubmission_file_/03.ipynb": NB}, year=2012)  # fmt: skip
    years = received(lay_out(tmp_path / "in", {"class.zip": outer}), tmp_path)
    assert years == {"Ada (1)": 2012, "Bob (2)": 2012}


def test_a_link_to_somebody_elses_work_is_not_followed(tmp_path: Path) -> None:
    folder = lay_out(tmp_path / "in", {"Bob/03.ipynb": NB, "Ada/notes.ipynb": NB})
    os.symlink("../Bob/03.ipynb", folder / "Ada" / "03.ipynb")
    os.symlink("round.ipynb", folder / "Ada" / "round.ipynb")
    ada, bob = collect(folder, store=tmp_path / "store")
    assert [p.place for p in ada.papers] == ["Ada/notes.ipynb"]
    assert [p.sentence for p in ada.problems] == [
        "03.ipynb is a link; it was not read.",
        "round.ipynb is a link; it was not read.",
    ]
    assert (len(bob.papers), bob.problems) == (1, ())


def test_names_that_no_file_can_hold_are_shown(tmp_path: Path) -> None:
    """Latin-1 from an old zip, and what nobody sees or what turns the text around."""
    folder = lay_out(tmp_path / "in", {"Zoë Å/03.ipynb": NB, "می‌خواهم/03.ipynb": NB})
    for raw in (b"Andr\xe9 ", b"Ada\xe2\x80\x8b", b"\xe2\x80\xaegnp.exe", b"a\nb\x1b[31m"):
        path = os.path.join(os.fsencode(folder), raw)
        os.makedirs(path)
        with open(path + b"/03.ipynb", "wb") as file:
            file.write(NB)
    names = [s.name for s in collect(folder, store=tmp_path / "store")]
    assert {"André", "Ada\ufffd", "\ufffdgnp.exe", "a b\ufffd[31m"} < set(names)
    assert {"Zoë Å", "می‌خواهم"} < set(names)  # and names of people stay as they are
    assert all(name.encode() for name in names)


def test_of_too_many_notebooks_the_newest_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"Ada/{n:03}.ipynb": NB + b" " * n for n in range(103)}
    folder = lay_out(tmp_path / "in", {**files, "Bob/03.ipynb": NB})
    for n in range(103):
        os.utime(folder / "Ada" / f"{n:03}.ipynb", (1_000_000_000 + n,) * 2)
    ada, bob = collect(folder, store=tmp_path / "store")
    assert [p.place for p in ada.papers] == [f"Ada/{n:03}.ipynb" for n in range(3, 103)]
    assert ada.problems[0].sentence.endswith("3 of them were not read.")
    assert (len(bob.papers), bob.problems) == (1, ())
    monkeypatch.setattr(intake, "_MOST_BYTES", len(NB) * 3)
    _, bob = collect(folder, store=tmp_path / "store")
    assert len(bob.papers) == 1


def test_a_folder_of_a_class_cannot_use_up_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_MEMBERS", 1_000)
    many = {f"Eve/a/{n}.ipynb": NB for n in range(900)}
    data = zipped({**many, "Eve/b.ipynb": NB, "Zed/03.ipynb": NB})
    students = {
        s.name: s
        for s in collect(lay_out(tmp_path / "in", {"class.zip": data}), store=tmp_path / "store")
    }
    assert len(students["Zed"].papers) == 1
    assert not students["Zed"].problems
    assert len(students["Eve"].problems) <= 12  # ten members, and that they were too many


def test_an_archive_does_not_grow_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_TOTAL_BYTES", 1 << 20)
    bomb = {f"{n}/{n}.ipynb": b" " * (1 << 20) for n in range(40)}
    [eve] = collect(lay_out(tmp_path / "in", {"Eve.zip": zipped(bomb)}), store=tmp_path / "store")
    assert 1 <= len(eve.papers) < 10
    assert "too many bytes" in eve.problems[-1].sentence
    rng = random.Random()
    honest = {f"{n}/{n}.ipynb": rng.randbytes(1 << 19) for n in range(20)}
    folder = lay_out(tmp_path / "honest", {"Ada.zip": zipped(honest)})
    [ada] = collect(folder, store=tmp_path / "store")
    assert (len(ada.papers), ada.problems) == (20, ())


def test_blackboards_date() -> None:
    date = attempt_date("HW_ada_attempt_2026-05-04-10-00-01_a.ipynb")
    assert date is not None
    assert (date.year, date.second) == (2026, 1)
    assert attempt_date("Ada/a.ipynb") is None
