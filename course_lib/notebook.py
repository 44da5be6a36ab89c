"""What the course does to a notebook's kernel process: it learns which cell is which.

ipykernel compiles a cell under the name of a temporary file made from its
source. Before a cell runs, that name is registered with the cell's id, so that
findings read "cell <id>, line n". JupyterLab sends the id along; where it is
not sent (nbval, nbclient), it is looked up by the cell's source among the
course's chapters; failing that, the cell's number is used.
"""

from __future__ import annotations

import sys
from typing import Any

from course_lib import model
from course_lib.diagnostics import register_cell

_installed = False


def install() -> bool:
    """Hooks into the running IPython, if there is one; True if it did (once)."""
    global _installed
    shell = _shell()
    if shell is None or _installed:
        return False
    _installed = True
    shell.events.register("pre_run_cell", _before_cell)
    _register_running_cell(shell)
    shell.events.register("post_run_cell", _warm_up)
    return True


def _warm_up(_result: Any) -> None:
    """Once the importing cell has shown its output: until then the processor is the cell's."""
    shell = _shell()
    if shell is not None:
        shell.events.unregister("post_run_cell", _warm_up)
    model.warm_up()


def _shell() -> Any | None:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell if shell is not None and hasattr(shell, "kernel") else None


def _before_cell(info: Any) -> None:
    shell = _shell()
    if shell is not None:
        _register(shell, info.raw_cell, getattr(info, "cell_id", None))


def _register_running_cell(shell: Any) -> None:
    """The cell that imports the course runs already: it is the frame with the user's globals."""
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_globals is shell.user_ns and frame.f_code.co_name == "<module>":
            history = shell.history_manager.input_hist_raw  # of all cells so far, from In[1] on
            name = _id_by_source(history[-1]) or f"[{len(history) - 1}]"
            register_cell(frame.f_code.co_filename, name)
            return
        frame = frame.f_back


def _register(shell: Any, source: str, cell_id: str | None) -> None:
    # the history does not hold this cell yet, and its place 0 is empty
    name = cell_id or _id_by_source(source) or f"[{len(shell.history_manager.input_hist_raw)}]"
    register_cell(shell.compile.get_code_name(source, source, shell.execution_count), name)


def _id_by_source(source: str) -> str | None:
    from course_lib.authoring.cellids import cell_ids_by_source, source_sha

    return cell_ids_by_source().get(source_sha(source))
