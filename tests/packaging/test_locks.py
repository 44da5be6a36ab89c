"""The locks pin every package by version and hash, agree with each other and with pyproject."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from course_lib.setup_env import LOCKS, ROOT, read_lock
from tests.packaging.project import LOCK_FILES, PYPROJECT, group, pins

_PIN = re.compile(r"^[\w.-]+==[\w.+!-]+( ; [^\\]+)? \\$")
_HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


def test_make_lock_writes_every_lock() -> None:
    assert sorted(lock.name for lock in LOCKS) == [file.name for file in LOCK_FILES]


@pytest.mark.parametrize("lock", LOCK_FILES, ids=lambda p: p.name)
def test_a_lock_holds_versions_and_hashes_and_nothing_else(lock: Path) -> None:
    lines = lock.read_text().splitlines()
    assert lines
    strange = [line for line in lines if not (_PIN.match(line) or _HASH.match(line))]
    assert strange == []


@pytest.mark.parametrize("lock", LOCK_FILES, ids=lambda p: p.name)
def test_every_package_of_a_lock_has_a_hash(lock: Path) -> None:
    text = lock.read_text()
    blocks = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
    assert len(blocks) == len(read_lock(lock))
    assert [b.split()[0] for b in blocks if "--hash=sha256:" not in b] == []


def _unmet(requirements: list[str], lock: Path) -> list[str]:
    """Those of `requirements` that a lock leaves out, or meets with a version they do not admit."""
    have = pins(lock)

    def met(requirement: Requirement) -> bool:
        version = have.get(canonicalize_name(requirement.name))
        return version is not None and requirement.specifier.contains(version, prereleases=True)

    return [r for r in requirements if not met(Requirement(r))]


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("requirements.lock", ["build"]),
        ("requirements-cuda12.lock", ["build"]),
        ("requirements-jax-oldest.lock", ["build", "oldest-jax"]),
    ],
)
def test_a_lock_satisfies_pyproject(name: str, groups: list[str]) -> None:
    wanted = [*PYPROJECT["project"]["dependencies"], *PYPROJECT["build-system"]["requires"]]
    wanted += [r for g in groups for r in group(g)]
    assert _unmet(wanted, ROOT / name) == []


def test_the_developers_lock_satisfies_pyproject() -> None:
    assert _unmet(group("dev"), ROOT / "requirements-dev.lock") == []


def test_the_instructors_lock_satisfies_pyproject() -> None:
    extra = PYPROJECT["project"]["optional-dependencies"]["grading"]
    assert group("grading") == extra
    assert _unmet(extra, ROOT / "requirements-grading.lock") == []


def test_a_requirement_that_a_lock_does_not_meet_is_noticed() -> None:
    lock = ROOT / "requirements.lock"
    assert _unmet(["numpy>=999", "no-such-package"], lock) == [
        "numpy>=999",
        "no-such-package",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "requirements-cuda12.lock",
        "requirements-dev.lock",
        "requirements-grading.lock",
        "requirements-jax-oldest.lock",
    ],
)
def test_locks_that_share_an_environment_or_a_test_agree(name: str) -> None:
    base, other = pins(ROOT / "requirements.lock"), pins(ROOT / name)
    may_differ = {"jax", "jaxlib"} if "oldest" in name else set()
    unlike = {p for p in base.keys() & other.keys() - may_differ if base[p] != other[p]}
    assert unlike == set()


def test_the_oldest_jax_is_the_one_that_pyproject_admits() -> None:
    [jax] = [r for r in PYPROJECT["project"]["dependencies"] if r.startswith("jax")]
    oldest = pins(ROOT / "requirements-jax-oldest.lock")["jax"]
    assert f">={oldest}," in jax


def test_the_newest_jax_is_locked_and_the_compiler_fits_it() -> None:
    base = pins(ROOT / "requirements.lock")
    compiler = pins(ROOT / "requirements-toolchain.lock")
    assert base["jax"] != pins(ROOT / "requirements-jax-oldest.lock")["jax"]
    assert {v for n, v in compiler.items() if n.startswith("jax-")} == {base["jaxlib"]}


def test_the_cuda_lock_adds_cuda_and_the_cpu_lock_has_none() -> None:
    cuda = {n for n in pins(ROOT / "requirements-cuda12.lock") if "cuda12" in n or "cu12" in n}
    assert "jax-cuda12-plugin" in cuda
    assert not cuda & pins(ROOT / "requirements.lock").keys()
