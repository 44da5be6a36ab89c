"""`course explore` opens the static page at a view."""

from __future__ import annotations

import webbrowser

import pytest

from course_lib import cli
from course_lib.explorer import page


def test_it_opens_the_page(monkeypatch, capsys):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    assert cli.main(["explore"]) == 0
    assert opened == [page.PAGE.as_uri()]
    assert capsys.readouterr().out == f"{page.PAGE.as_uri()}\n"


def test_it_opens_a_view_and_a_link(monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    assert cli.main(["explore", "banks"]) == 0
    assert cli.main(["explore", "#smem?columns=128"]) == 0
    assert [url.partition("#")[2] for url in opened] == ["banks", "smem?columns=128"]


def test_it_only_prints_when_asked_to(monkeypatch, capsys):
    monkeypatch.setattr(webbrowser, "open", lambda url: pytest.fail("opened"))
    assert cli.main(["explore", "tmem", "--print"]) == 0
    assert capsys.readouterr().out.endswith("index.html#tmem\n")


def test_without_a_browser_it_says_what_to_do(monkeypatch, capsys):
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    assert cli.main(["explore"]) == 0
    assert "open that address in yours" in capsys.readouterr().out


def test_an_unknown_view_is_named(capsys):
    assert cli.main(["explore", "sram"]) == 1
    assert (
        "none of smem, registers, banks, tmem, pipeline, barriers, waves or schedules"
        in capsys.readouterr().err
    )
