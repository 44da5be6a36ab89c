"""Reads a chapter's source, `solutions/NN_title.md`, and says what is wrong with it.

The source is MyST Markdown as jupytext reads it, with an id of its own for every
cell (jupytext would make a new random one at each conversion):

    +++ {"id": "goal"}                  a Markdown cell
    You will be able to ...

    ```{code-cell} ipython3             a code cell
    :id: setup
    :tags: [given]
    import jax
    ```

Tags: `given` (to read and run), `exercise` (with `:exercise: title.name` and a
solution region, see `regions`), `check` (calls `check`), `predict` (asks a question,
see `predictions`), `break-it` (wrong on purpose) and `nbval-ignore-output` (its output
is not compared).
"""

from __future__ import annotations

import ast
import dataclasses
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from course_lib.authoring import predictions, regions
from course_lib.diagnostics import CourseError
from course_lib.mojo.answers import exercise_of

Registry = Callable[[str], str]

TAGS = ("given", "exercise", "check", predictions.TAG, "break-it", "nbval-ignore-output")
MAX_CODE_LINES = 40
CHAPTER_NAME = re.compile(r"^\d\d_[a-z][a-z0-9_]*$")

_CELL_ID = re.compile(r"^[A-Za-z0-9_-]{1,64}$")
_EXERCISE_ID = re.compile(r"^[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*$")
_NBVAL_COMMENT = re.compile(r"^\s*#+\s*(NBVAL_\w+|PYTEST_VALIDATE_IGNORE_OUTPUT)\s*$")
_IMAGE = re.compile(r"!\[(?P<alt>[^\]]*)\](?:\((?P<target>[^)\s]*)|\[)?")
_HTML_IMAGE = re.compile(r"<img\b[^>]*>", re.IGNORECASE | re.DOTALL)
_HTML_ALT = re.compile(r"""\balt\s*=\s*(["'])\s*\S.*?\1""", re.IGNORECASE | re.DOTALL)
_HTML_SRC = re.compile(r"""\bsrc\s*=\s*["']([^"']*)""", re.IGNORECASE)
_DIRECTIVE = re.compile(r"^\s*(`{3,}|~{3,}|:{3,})\s*\{([\w-]+)\}")


@dataclasses.dataclass(frozen=True)
class Course:
    """Where the parts of a course are.

    Attributes:
      root: the folder that holds `solutions/`, `notebooks/` and `workspace/`.
      library: the package that the chapters import.
    """

    root: Path = Path(__file__).resolve().parents[2]
    library: Path = Path(__file__).resolve().parents[1]

    @property
    def solutions(self) -> Path:
        return self.root / "solutions"

    @property
    def notebooks(self) -> Path:
        return self.root / "notebooks"

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    def sources(self) -> list[Path]:
        """The chapters' sources, in order."""
        return sorted(p for p in self.solutions.glob("*.md") if CHAPTER_NAME.match(p.stem))


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell of a chapter.

    Attributes:
      id: its name, the same for ever.
      kind: "code" or "markdown".
      text: its source, solution regions included.
      line: the line of the chapter's source on which `text` starts, from 1.
      tags: some of `TAGS`.
      exercise: the exercise that it holds, or "".
    """

    id: str
    kind: str
    text: str
    line: int
    tags: tuple[str, ...] = ()
    exercise: str = ""


@dataclasses.dataclass(frozen=True)
class Chapter:
    """A chapter as its source has it.

    Attributes:
      path: the source.
      source: its whole text.
      cells: the cells, top to bottom.
    """

    path: Path
    source: str
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """The chapter's name with its number: "00_start_here"."""
        return self.path.stem

    @property
    def title(self) -> str:
        """The chapter's name without its number: "start_here"."""
        return self.name[3:]

    @property
    def code(self) -> list[Cell]:
        """The code cells, top to bottom."""
        return [c for c in self.cells if c.kind == "code"]

    @property
    def exercises(self) -> list[Cell]:
        """The cells that hold an exercise, top to bottom."""
        return [c for c in self.cells if c.exercise]

    def median_code_lines(self) -> float:
        """The median length of the code cells that do something, in lines; 0 where there are none.

        Cells that only ask for a prediction do not count.
        """
        working = [c for c in self.code if predictions.TAG not in c.tags]
        return statistics.median([len(c.text.splitlines()) for c in working] or [0])


@dataclasses.dataclass(frozen=True)
class _Problem:
    line: int
    message: str


def read_chapter(path: Path, *, registry: Registry | None = None) -> Chapter:
    """Reads and checks the source of one chapter.

    Args:
      path: `solutions/NN_title.md`.
      registry: gives the name of an exercise's function (`registered_function`), and
        raises KeyError or CourseError where there is no such exercise; None asks nobody.

    Raises:
      CourseError: something is wrong; one line for each problem, with file and line.
    """
    if not CHAPTER_NAME.match(path.stem):
        raise CourseError(
            f"{_shown(path)}: a chapter's source is called NN_title.md, two digits and a title "
            "in small letters, digits and underscores"
        )
    source = path.read_text(encoding="utf-8")
    chapter = Chapter(path, source, tuple(_read_cells(path, source)))
    problems = sorted(_problems(chapter, registry), key=lambda p: p.line)
    if problems:
        raise CourseError(
            "\n".join(f"{_shown(path)}, line {p.line}: {p.message}" for p in problems)
        )
    return chapter


def registered_function(exercise_id: str) -> str:
    """The name of the function of a registered exercise.

    Raises:
      CourseError: there is no such exercise, or its module cannot be imported.
    """
    try:
        from course_lib import exercises

        return exercises.get(exercise_id).function
    except CourseError:
        raise
    except Exception as error:
        chapter = exercise_id.split(".")[0]
        raise CourseError(
            f"course_lib/exercises/{chapter}.py cannot be imported, {type(error).__name__}: {error}"
        ) from error


def find_sources(course: Course, chapters: Sequence[str] | None = None) -> list[Path]:
    """The sources of some chapters, each named by number, title, both, or file; None is all.

    Raises:
      CourseError: a name fits no chapter.
    """
    sources = course.sources()
    if chapters is None:
        return sources
    found = {_find(str(c), sources) for c in chapters}
    return [s for s in sources if s in found]


def _find(name: str, sources: Sequence[Path]) -> Path:
    stem = Path(name).stem
    stem = stem.zfill(2) if stem.isdigit() else stem
    for source in sources:
        if stem in (source.stem, source.stem[:2], source.stem[3:]):
            return source
    known = ", ".join(s.stem for s in sources) or "none yet"
    raise CourseError(f'There is no chapter "{name}". The chapters are: {known}.')


def _shown(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


# --- reading -------------------------------------------------------------------------------------


def _read_cells(path: Path, source: str) -> Iterator[Cell]:
    from jupytext.myst import myst_to_notebook

    try:
        notebook = myst_to_notebook(source, add_source_map=True)
    except Exception as error:  # of many types: YAML, JSON, jupytext's and nbformat's own
        raise CourseError(f"{_shown(path)} is not MyST Markdown: {error}") from None
    _check_header(path, notebook.metadata)
    lines = source.splitlines()
    for cell, start in zip(notebook.cells, notebook.metadata["source_map"], strict=True):
        if cell.cell_type == "raw":
            raise CourseError(f"{_shown(path)}, line {start}: raw cells are not used here")
        yield _read_cell(path, cell, start, lines)


def _check_header(path: Path, metadata: Mapping[str, Any]) -> None:
    try:
        format_name = metadata["jupytext"]["text_representation"]["format_name"]
    except (KeyError, TypeError):
        format_name = None
    if format_name != "myst":
        raise CourseError(
            f"{_shown(path)}, line 1: the file starts with a header between --- lines that holds\n"
            "  jupytext: {text_representation: {extension: .md, format_name: myst}}\n"
            "  kernelspec: {display_name: Python 3, language: python, name: python3}"
        )


def _read_cell(path: Path, cell: Any, start: int, lines: Sequence[str]) -> Cell:
    code = cell.cell_type == "code"
    line = _first_code_line(lines, start) if code else _first_filled_line(lines, start)
    allowed = {"id", "tags", "exercise"} if code else {"id"}

    def wrong(message: str) -> CourseError:
        return CourseError(f"{_shown(path)}, line {line}: {message}")

    unknown = sorted(set(cell.metadata) - allowed)
    if unknown:
        raise wrong(f"unknown option {_quoted(unknown)}; a cell has {_quoted(sorted(allowed))}")
    tags = cell.metadata.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(t, str) for t in tags):
        raise wrong("tags are a list of words, as in `:tags: [given]`")
    for option in ("id", "exercise"):
        if not isinstance(cell.metadata.get(option, ""), str):
            raise wrong(
                f'the {option} is not text for YAML: write it in quotes, `:{option}: "..."`'
            )
    return Cell(
        id=cell.metadata.get("id", ""),
        kind=cell.cell_type,
        text=cell.source.rstrip(),
        line=line,
        tags=tuple(tags),
        exercise=cell.metadata.get("exercise", ""),
    )


def _first_code_line(lines: Sequence[str], fence: int) -> int:
    """The line on which a code cell's text starts; `fence` is its ``` line (both from 1)."""
    line = fence + 1
    if line <= len(lines) and lines[line - 1].startswith("---"):
        line += 1
        while line <= len(lines) and not lines[line - 1].startswith("---"):
            line += 1
        line += 1
    while line <= len(lines) and lines[line - 1].lstrip().startswith(":"):
        line += 1
    return line + 1 if line <= len(lines) and not lines[line - 1].strip() else line


def _first_filled_line(lines: Sequence[str], start: int) -> int:
    """The first line with text at or after index `start` (from 0), counted from 1."""
    while start < len(lines) and not lines[start].strip():
        start += 1
    return start + 1


def _quoted(words: Sequence[str]) -> str:
    return ", ".join(f'"{w}"' for w in words)


# --- the rules -----------------------------------------------------------------------------------


def _problems(chapter: Chapter, registry: Registry | None) -> Iterator[_Problem]:
    yield from _id_problems(chapter)
    yield from _twin_problems(chapter)
    yield from _check_cell_problems(chapter)
    yield from (_Problem(*problem) for problem in predictions.problems(chapter))
    for cell in chapter.cells:
        if cell.kind == "markdown":
            yield from _markdown_problems(chapter, cell)
            continue
        yield from _code_problems(cell)
        yield from _region_problems(cell)
        yield from _exercise_problems(chapter, cell, registry)


def _id_problems(chapter: Chapter) -> Iterator[_Problem]:
    seen: dict[str, int] = {}
    for cell in chapter.cells:
        how = ":id: name" if cell.kind == "code" else '+++ {"id": "name"}'
        if not cell.id:
            yield _Problem(cell.line, f"this {cell.kind} cell has no id: add `{how}`")
        elif not _CELL_ID.match(cell.id):
            yield _Problem(
                cell.line,
                f'bad cell id "{cell.id}": an id has 1 to 64 letters, digits, "-" or "_"',
            )
        elif cell.id in seen:
            yield _Problem(
                cell.line,
                f'the cell id "{cell.id}" is taken by line {seen[cell.id]}: choose another',
            )
        seen.setdefault(cell.id, cell.line)


def _twin_problems(chapter: Chapter) -> Iterator[_Problem]:
    """Two code cells with one text: a location could not tell which of them is meant."""
    seen: dict[str, Cell] = {}
    for cell in chapter.code:
        first = seen.setdefault(cell.text, cell)
        if first is not cell:
            yield _Problem(
                cell.line,
                f'the cells "{first.id}" and "{cell.id}" have the same code, so that a message '
                "about a line could mean either: change one, or leave one out",
            )


def _code_problems(cell: Cell) -> Iterator[_Problem]:
    unknown = sorted(set(cell.tags) - set(TAGS))
    if unknown:
        yield _Problem(cell.line, f"unknown tag {_quoted(unknown)}; the tags are {_quoted(TAGS)}")
    roles = [t for t in ("given", "exercise", "check", predictions.TAG) if t in cell.tags]
    if len(roles) > 1:
        yield _Problem(cell.line, f"a cell is only one of {_quoted(roles)}")
    lines = cell.text.splitlines()
    if not lines:
        yield _Problem(cell.line, f'the code cell "{cell.id}" is empty')
    if len(lines) > MAX_CODE_LINES:
        yield _Problem(
            cell.line,
            f'the code cell "{cell.id}" has {len(lines)} lines, at most {MAX_CODE_LINES} are '
            "read easily: move code to course_lib/kernels and import it",
        )
    for number, line in enumerate(lines):
        if _NBVAL_COMMENT.match(line):
            yield _Problem(
                cell.line + number,
                f'"{line.strip()}" hides an output from the tests: use the tag '
                '"nbval-ignore-output" where there is no other way',
            )


def _region_problems(cell: Cell) -> Iterator[_Problem]:
    try:
        found = regions.regions(cell.text)
        regions.check_stubs_wait(cell.text)
    except regions.RegionError as error:
        yield _Problem(cell.line + error.line - 1, str(error))
        return
    if found and "exercise" not in cell.tags:
        yield _Problem(
            cell.line + found[0].begin - 1,
            f'the cell "{cell.id}" has a solution region but not the tag "exercise"',
        )
    if not found and "exercise" in cell.tags:
        yield _Problem(
            cell.line,
            f'the exercise cell "{cell.id}" has no solution region: put "{regions.BEGIN}" and '
            f'"{regions.END}" around the lines that the learner writes',
        )


def _exercise_problems(
    chapter: Chapter, cell: Cell, registry: Registry | None
) -> Iterator[_Problem]:
    if cell.exercise and "exercise" not in cell.tags:
        yield _Problem(cell.line, f'`:exercise:` without the tag "exercise" in cell "{cell.id}"')
    if "exercise" not in cell.tags:
        return
    if not cell.exercise:
        yield _Problem(
            cell.line,
            f'the exercise cell "{cell.id}" does not say which exercise it is: add '
            f"`:exercise: {chapter.title}.name`",
        )
    elif not _EXERCISE_ID.match(cell.exercise) or cell.exercise.split(".")[0] != chapter.title:
        yield _Problem(
            cell.line,
            f'bad exercise id "{cell.exercise}": here it is "{chapter.title}.name", the name in '
            "small letters, digits and underscores",
        )
    elif [c.exercise for c in chapter.cells].count(cell.exercise) > 1:
        yield _Problem(cell.line, f'more than one cell holds the exercise "{cell.exercise}"')
    elif registry is not None:
        yield from _registry_problems(chapter, cell, registry)


def _registry_problems(chapter: Chapter, cell: Cell, registry: Registry) -> Iterator[_Problem]:
    try:
        function = registry(cell.exercise)
    except (KeyError, CourseError) as error:
        why = f" ({error})" if isinstance(error, CourseError) else ""
        yield _Problem(
            cell.line,
            f'the exercise "{cell.exercise}" is not registered in '
            f"course_lib/exercises/{chapter.title}.py{why}",
        )
        return
    if regions.is_mojo(cell.text):
        if exercise_of(cell.text) != cell.exercise:
            yield _Problem(
                cell.line,
                f'the first line of cell "{cell.id}" does not say `--exercise {cell.exercise}`',
            )
        return
    if function not in _top_level_functions(cell.text):
        yield _Problem(
            cell.line,
            f'the exercise "{cell.exercise}" is about a function called "{function}", '
            "which this cell does not define",
        )


def _check_cell_problems(chapter: Chapter) -> Iterator[_Problem]:
    done: Counter[str] = Counter()
    seen: set[str] = set()
    for cell in chapter.code:
        seen.add(cell.exercise)
        checked = checked_exercises(cell.text)
        done.update(checked)
        if checked and "check" not in cell.tags:
            yield _Problem(
                cell.line, f'the cell "{cell.id}" calls check(...): give it the tag "check"'
            )
        if "check" in cell.tags and not checked:
            yield _Problem(
                cell.line,
                f'the cell "{cell.id}" has the tag "check" but no check("{chapter.title}.name", '
                "function) in it",
            )
        for exercise in checked:
            if exercise not in seen:
                yield _Problem(cell.line, f'no cell above this one holds the exercise "{exercise}"')
    for cell in chapter.exercises:
        if not done[cell.exercise]:
            yield _Problem(cell.line, f'no cell below this one calls check("{cell.exercise}", ...)')


def checked_exercises(text: str) -> list[str]:
    """The ids for which a cell calls `check("id", ...)`."""
    calls = (n for n in ast.walk(_parse(text)) if isinstance(n, ast.Call) and n.args)
    return [
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Name)
        and call.func.id == "check"
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    ]


def _top_level_functions(text: str) -> set[str]:
    return {n.name for n in _parse(text).body if isinstance(n, ast.FunctionDef)}


def _parse(text: str) -> ast.Module:
    """The syntax tree of a cell; an empty one where the cell is no plain Python (a magic)."""
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])


def _markdown_problems(chapter: Chapter, cell: Cell) -> Iterator[_Problem]:
    for number, line in _prose(cell.text):
        at = cell.line + number
        directive = _DIRECTIVE.match(line)
        if directive:
            yield _Problem(
                at, f'JupyterLab shows the directive "{{{directive[2]}}}" as code: write Markdown'
            )
        for image in _IMAGE.finditer(line):
            if not image["alt"].strip():
                yield _Problem(at, "this image has no alt text: ![what is seen](file)")
            yield from _target_problems(chapter, at, image["target"] or "")
    prose = "\n".join(line for _, line in _prose(cell.text))
    for image in _HTML_IMAGE.finditer(prose):
        at = cell.line
        if not _HTML_ALT.search(image[0]):
            yield _Problem(at, f'an <img> of cell "{cell.id}" has no alt text: alt="what is seen"')
        for source in _HTML_SRC.findall(image[0]):
            yield from _target_problems(chapter, at, source)


def _target_problems(chapter: Chapter, line: int, target: str) -> Iterator[_Problem]:
    if not target:
        return
    if re.match(r"^[a-z]+:", target):
        yield _Problem(line, f'the image "{target}" is not in the tree: the course works offline')
    elif not (chapter.path.parent / target).is_file():
        yield _Problem(line, f'there is no image "{target}" beside this file')


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a Markdown cell (from 0) without those of code blocks and without `code`."""
    fence = ""
    for number, line in enumerate(text.splitlines()):
        mark = re.match(r"^\s*(`{3,}|~{3,})(.*)$", line)
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
            continue
        if mark and not _DIRECTIVE.match(line):
            fence = mark[1]
            continue
        if mark:
            fence = mark[1]
        yield number, re.sub(r"(`+)[^`]+?\1", "", line)
