"""Fixtures: exercises of the tests' own, and a workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_lib.exercises import predictions, records, registry
from tests.exercises import practice


@pytest.fixture
def exercises(monkeypatch: pytest.MonkeyPatch) -> None:
    """The practice exercises, registered for one test."""
    monkeypatch.setattr(registry, "_exercises", {e.id: e for e in practice.ALL})
    monkeypatch.setattr(registry, "_chapter_modules", lambda: ())


@pytest.fixture
def no_workspace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty current folder outside of any workspace, and no memory of earlier tests."""
    monkeypatch.setattr(records, "_in_memory", records._Progress())
    monkeypatch.setattr(predictions, "_answers", {})
    monkeypatch.delenv("COURSE_WORKSPACE", raising=False)
    monkeypatch.delenv("COURSE_MODEL_ONLY", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def workspace(no_workspace: Path) -> Path:
    """A workspace, current folder included."""
    (no_workspace / ".course").mkdir()
    return no_workspace
