"""The view of a compiled kernel: in a notebook, as plain text, and in a browser."""

import re
from html.parser import HTMLParser

import jax.numpy as jnp
import pytest

from course_lib.compiler import compile_for
from course_lib.compiler.compiled import from_data
from course_lib.kernels import matmul_hopper
from tests.compiler.kernels import scale_through_smem, spec

SQUARE = (spec(1024, 1024, dtype=jnp.float16),) * 2


@pytest.fixture(scope="module")
def code():
    return compile_for(matmul_hopper.matmul, *SQUARE)


class _Page(HTMLParser):
    VOID = ("input",)

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def of(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def test_it_is_html_and_plain_text(code):
    bundle = code.view()._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    assert not _Page(bundle["text/html"]).open


def test_the_same_at_every_run(code):
    again = compile_for(matmul_hopper.matmul, *SQUARE)
    assert code.view()._repr_mimebundle_() == again.view()._repr_mimebundle_()


def test_nothing_comes_from_outside_and_nothing_has_an_id(code):
    html = code.view().html()
    page = _Page(html)
    for _, attributes in page.tags:
        assert not {"src", "href", "id"} & set(attributes)
    assert "http" not in html
    assert "url(" not in html
    assert "<script" not in html


def test_everything_to_operate_has_a_name(code):
    page = _Page(code.view().html())
    assert all(b.get("aria-label") for b in page.of("button"))
    panes = [d for d in page.of("div") if d.get("role") == "group"]
    assert len(panes) == 3
    assert all(p["aria-label"] and p["tabindex"] == "0" for p in panes)
    [section] = page.of("section")
    assert section["aria-label"] == "Source and instructions, compiled for sm_90a"


def test_the_special_instructions_are_picked_out_by_colour_and_by_word(code):
    html = code.view().html()
    for css, kind, opcode in (
        ("tensor-core", "tensor core", "HGMMA"),
        ("TMA", "TMA", "UTMALDG"),
        ("barrier", "barrier", "SYNCS"),
    ):
        rows = [r for r in re.findall(r"<li.*?</li>", html) if opcode in r]
        assert rows
        assert all(f'class="{css}"' in r and f"<b>{kind}</b>" in r for r in rows)


def test_a_line_and_its_instructions_share_a_key(code):
    html = code.view().html()
    [key] = set(
        re.findall(r'data-l="([\d.]+)"><button[^>]*>\d+</button><code>[^<]*plgpu.wgmma\(', html)
    )
    rows = [r for r in re.findall(r"<li[^>]*>.*?</li>", html) if f'data-l="{key}"' in r]
    assert any("HGMMA" in r for r in rows)
    assert any("wgmma.mma_async" in r for r in rows)


def test_the_plain_text_has_the_source_and_what_became_of_it(code):
    text = repr(code.view())
    row = next(r for r in text.splitlines() if "plgpu.wgmma(acc" in r)
    assert re.search(r"\d+  .*\dx HGMMA\.64x128x16\.F32", row)
    assert "wgmma.mma_async" in repr(code.view(language="ptx"))
    assert max(map(len, text.splitlines())) < 220


def test_a_language_that_does_not_exist(code):
    with pytest.raises(ValueError, match='"sass" or "ptx"'):
        code.view(language="llvm")


def test_show_prints_the_text_outside_of_a_notebook(code, capsys):
    assert code.show() is None
    assert capsys.readouterr().out == f"{code.view()!r}\n"


def test_a_source_that_cannot_be_read_shows_its_line_numbers():
    ptx = '{\n.loc 1 3 0\nret;\n}\n.file 1 "/gone/kernel.py"\n'
    kernel = {
        "name": "<kernel>", "grid": [1, 1, 1], "block": [128, 1, 1], "cluster": [1, 1, 1],
        "smem_bytes": 0, "tmem_columns": 0, "registers": 1, "spill_bytes": 0, "stack_bytes": 0,
        "ptx": ptx, "sass": "", "layouts": [],
    }  # fmt: skip
    html = from_data({"kernels": [kernel], "buffers": []}, arch="sm_90a").view().html()
    assert "kernel.py" in html
    assert ">3</button>" in html
    assert "&lt;kernel&gt;" in html


# --- in a browser ------------------------------------------------------------------------------


@pytest.fixture
def page(code, tmp_path):
    from tests.browser.chromium import chromium

    other = compile_for(scale_through_smem, spec(128, 128))
    views = code.view().html() + other.view().html()
    file = tmp_path / "view.html"
    file.write_text(
        f"<!doctype html><html lang='en'><meta charset='utf-8'><body>{views}</body></html>"
    )
    with chromium() as opened:
        opened.goto(file.as_uri())
        yield opened


def shown(page, selector: str) -> int:
    return page.locator(selector).evaluate_all(
        "(all) => all.filter(e => e.checkVisibility()).length"
    )


FIRST, SECOND = "section:nth-of-type(1)", "section:nth-of-type(2)"


@pytest.mark.browser
@pytest.mark.needs("chromium")
def test_search_and_filters(page):
    everything = shown(page, f"{FIRST} .sass li")
    search, said = page.locator(f"{FIRST} input[type=search]"), page.locator(f"{FIRST} output")
    search.press_sequentially("hgmma")
    assert shown(page, f"{FIRST} .sass li") == 8
    assert said.inner_text() == "8 instructions"
    page.locator(f"{FIRST} input[value=ptx]").click()
    assert shown(page, f"{FIRST} .sass li") == 0
    assert said.inner_text() == "0 instructions"
    page.locator(f"{FIRST} input[value=sass]").click()
    search.clear()
    page.locator(f"{FIRST} input[value=other]").click()
    picked = shown(page, f"{FIRST} .sass li")
    assert 0 < picked < everything
    # the view below is not touched
    assert shown(page, f"{SECOND} .sass li") > 0
    assert shown(page, f"{SECOND} .ptx li") == 0


@pytest.mark.browser
@pytest.mark.needs("chromium")
def test_a_line_shows_its_instructions(page):
    lines = page.locator(f"{FIRST} .source li[data-l]", has_text="plgpu.wgmma(")
    assert lines.count() == 1
    lines.locator("button").press("Enter")
    chosen = page.locator(f"{FIRST} .sass li.on")
    assert any("HGMMA" in said for said in chosen.all_inner_texts())
    pane, first = page.locator(f"{FIRST} .sass").bounding_box(), chosen.first.bounding_box()
    assert pane["y"] <= first["y"] <= pane["y"] + pane["height"]  # scrolled into sight
    lines.locator("button").press("Enter")
    assert page.locator("li.on").count() == 0


@pytest.mark.browser
@pytest.mark.needs("chromium")
def test_it_fits_a_narrow_window(page):
    from tests.browser.chromium import console_errors, outside_requests, set_viewport

    for width, beside in ((1280, True), (700, False)):
        set_viewport(page, width=width, height=900)
        source = page.locator(f"{FIRST} .source").bounding_box()
        listing = page.locator(f"{FIRST} .sass").bounding_box()
        assert (listing["x"] > source["x"]) == beside
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert outside_requests(page) == []
    assert console_errors(page) == []
