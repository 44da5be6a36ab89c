"""What the tree must not hold: a registry's host, or a path of somebody's machine."""

import functools
import gzip
import re
from pathlib import Path

import pytest

from course_lib.setup_env import ROOT
from tests.packaging.project import tree

# Hosts that serve packages; put together here so that this file does not name one itself.
_REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("deb", "debian", "org"),
        ("archive", "ubuntu", "com"),
        ("registry", "npmjs", "org"),
        ("conda", "anaconda", "org"),
        ("pypi", "nvidia", "com"),
    )
]
_HOST = re.compile("|".join(map(re.escape, _REGISTRIES)))
# A folder of somebody's: what a home or a work folder is called on the systems we know.
_HOME = re.compile(r"(?<![\w.~$}/-])/(?:home|Users|root|work|opt|mnt|srv)/\w[\w./-]*")
_PICTURE = re.compile(r"\.(png|jpe?g|gif|ico|woff2?|ttf)$")


@functools.cache
def _texts() -> list[tuple[Path, str]]:
    """Every file of the tree that is not a picture, compressed ones unpacked."""
    return [
        (path.relative_to(ROOT), _text_of(path))
        for path in tree()
        if not _PICTURE.search(path.name)
    ]


def _text_of(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def _found(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for path, text in _texts()
        for match in pattern.finditer(text)
    ]


def test_no_package_registry_is_named() -> None:
    assert _found(_HOST) == []


def test_no_path_of_a_machine_is_named() -> None:
    assert _found(_HOME) == []
    assert _found(re.compile(re.escape(f"{ROOT}/"))) == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("see /" + "home/ada/course", True),
        ('open("/' + "root/x.py" + '")', True),
        ("/usr/lib/wsl/lib", False),
        ("solutions/work/x", False),
        ("http://localhost:8888/lab/tree/work/x", False),
    ],
)
def test_what_counts_as_a_path_of_a_machine(text: str, named: bool) -> None:
    assert bool(_HOME.search(text)) is named


def test_what_counts_as_a_registry() -> None:
    assert _HOST.search("https://" + "pypi" + ".org/simple")
    assert not _HOST.search("pip install jax")
