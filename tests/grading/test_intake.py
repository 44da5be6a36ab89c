"""Intake: whoever handed in something is found, under their own name, and nothing else is read."""

from __future__ import annotations

import io
import os
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from course_lib.diagnostics import CourseError
from course_lib.grading import archives
from course_lib.grading.intake import attempt_date, collect, owner_of

NB = b'{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'


def zipped(members: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
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


def test_blackboards_date() -> None:
    date = attempt_date("x/HW_ada_attempt_2026-05-04-10-00-01_a.ipynb")
    assert date is not None
    assert (date.year, date.second) == (2026, 1)
    assert attempt_date("Ada/a.ipynb") is None
