"""Runs a notebook in a kernel of this very Python, and says in a sentence what stopped it."""

from __future__ import annotations

import copy
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import ipykernel.kernelspec
import traitlets
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from course_lib.diagnostics import CourseError

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,}")
_ALT = re.compile(r"""\balt\s*=\s*["']\s*\S|<title>\s*\S|aria-label\s*=\s*["']\s*\S""")


class ThisPythonSpecs(KernelSpecManager):
    """Knows one kernel: the Python that runs this."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(
            resource_dir=ipykernel.kernelspec.RESOURCES, **ipykernel.kernelspec.get_kernel_dict()
        )


class ThisPython(AsyncKernelManager):
    @traitlets.default("kernel_spec_manager")
    def _this_python(self) -> KernelSpecManager:
        return ThisPythonSpecs(parent=self)


def execute(
    nb: NotebookNode,
    *,
    cwd: Path,
    env: Mapping[str, str],
    cell_timeout_s: float,
    name: str,
    on_cell: Callable[[str], None] = lambda cell_id: None,
) -> dict[str, list[Any]]:
    """Runs the code cells of `nb` from top to bottom in a fresh kernel.

    Args:
      nb: the notebook; it is not changed.
      cwd: the kernel's folder.
      env: variables that the kernel has besides this process's own.
      cell_timeout_s: seconds that one cell may take.
      name: what messages call the notebook.
      on_cell: called with the id of each cell that starts.

    Returns:
      The outputs, by cell id.

    Raises:
      CourseError: a cell raised, took too long, or ended its kernel; names the cell.
    """
    ran = copy.deepcopy(nb)
    running = ""

    def started(cell: NotebookNode, cell_index: int) -> None:
        nonlocal running
        running = cell["id"]
        on_cell(running)

    client = NotebookClient(
        ran,
        timeout=cell_timeout_s,
        kernel_manager_class=ThisPython,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        on_cell_execute=started,
    )
    with (
        tempfile.TemporaryDirectory(prefix="course-ipython-") as ipython,
        tempfile.TemporaryFile() as log,
    ):
        # A profile of its own: no history, no start-up files, no colours of the user's.
        whole = {**os.environ, "IPYTHONDIR": ipython, **env}
        try:
            client.execute(env=whole, cwd=str(cwd), stderr=log)
        except CellExecutionError as error:
            raise CourseError(f'{name}, cell "{running}": {_raised(error)}') from None
        except CellTimeoutError:
            raise CourseError(
                f'{name}, cell "{running}": no answer within {cell_timeout_s:g} s'
            ) from None
        except (DeadKernelError, RuntimeError) as error:
            raise CourseError(
                f'{name}, cell "{running}": the Python that ran it ended ({error}).{_tail(log)}'
            ) from None
    return {c.id: list(c.outputs) for c in ran.cells if c.cell_type == "code"}


def _tail(log: IO[bytes]) -> str:
    """The last lines of what a kernel wrote beside its outputs, each on a line of its own."""
    log.seek(0)
    lines = log.read().decode(errors="replace").rstrip().splitlines()
    lines = [line for line in lines if not line.startswith("[IPKernelApp]")]
    return "".join(f"\n    {line}" for line in lines[-8:])


def _raised(error: CellExecutionError) -> str:
    """The exception in one line, and the last lines of its traceback below."""
    first = f"{error.ename}: {error.evalue}".strip()
    # nbclient puts the cell's text above the traceback, which starts with a long rule.
    traceback = _ANSI.sub("", error.traceback).rpartition("-" * 60 + "\n")[2]
    tail = [line for line in traceback.rstrip().splitlines() if line.strip()][1:-1][-16:]
    if error.ename in ("CourseError", "KernelError"):
        return first
    return "\n    ".join([first, *tail])


def output_problems(cell: NotebookNode, *, root: Path) -> Iterator[str]:
    """What is wrong with the stored outputs of one cell, a phrase for each thing."""
    compared = "nbval-ignore-output" not in cell.metadata.get("tags", ())
    for output in cell.outputs:
        if compared and output.get("name") == "stderr":
            yield f"it writes to stderr ({_shorten(output.text)}): silence or explain the warning"
        texts = list(_texts(output))
        if any(path in text for text in texts for path in _machine_paths(root)):
            yield "its output holds a path of this machine: print names, not paths"
        if compared and any(_ADDRESS.search(t) for t in texts):
            yield "its output holds an address in memory, which no other run has: print a value"
        if _has_image(output) and not _has_alt(output):
            yield (
                "it shows a picture without alt text: show a figure with "
                'course_lib.figures.show(figure, alt="what is seen")'
            )


def _machine_paths(root: Path) -> Sequence[str]:
    """What the paths of this machine start with: no other machine prints them."""
    places = {f"{root}{os.sep}", tempfile.gettempdir() + os.sep, f"{os.sep}tmp{os.sep}"}
    places |= {sys.prefix + os.sep} if sys.prefix != sys.base_prefix else set()
    home = str(Path.home())
    places |= {home + os.sep} if home != os.sep else set()
    return [*sorted(places), "ipykernel_"]


def _texts(output: NotebookNode) -> Iterator[str]:
    yield output.get("text", "")
    for mime, data in output.get("data", {}).items():
        if mime.startswith("text/") or mime == "image/svg+xml":
            yield "".join(data)


def _has_image(output: NotebookNode) -> bool:
    return any(mime.startswith("image/") for mime in output.get("data", {}))


def _has_alt(output: NotebookNode) -> bool:
    for mime, data in output.data.items():
        if mime.startswith("image/"):
            described = output.get("metadata", {}).get(mime, {})
            if isinstance(described, dict) and str(described.get("alt", "")).strip():
                return True
        if mime in ("text/html", "image/svg+xml") and _ALT.search("".join(data)):
            return True
    return False


def _shorten(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line if len(line) <= 80 else line[:77] + "..."
