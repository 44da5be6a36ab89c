"""Opens JupyterLab on the learner's own copies: finds a port, starts the server, says where it is.

The server is this environment's own, so the kernel is this environment's
Python. Nothing in it asks the network for news, updates or extensions.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from course_lib.diagnostics.errors import CourseError

FIRST_NOTEBOOK = "00_start_here.ipynb"
DEFAULT_PORT = 8888
_PORTS_TRIED = 100
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 15.0
# JupyterLab reads what its page leaves out from a file only: the offer of news, the extension list.
_CONFIG = Path(__file__).parent / "lab_config"


def open_lab(
    workspace: Path,
    *,
    port: int = DEFAULT_PORT,
    browser: bool | None = None,
    notebook: str = FIRST_NOTEBOOK,
    say: Callable[[str], None] = print,
) -> int:
    """Serves `workspace` until Ctrl-C; returns the server's exit status.

    Args:
      port: the first port to try; the next free one is taken where it is busy.
      browser: whether to open a browser; None opens one where there is one.
      notebook: the notebook to open, a path inside `workspace`.

    Raises:
      CourseError: no port is free, or the server ended before it answered.
    """
    free = free_port(port)
    if free != port:
        say(f"Port {port} is busy; using {free}.")
    token = secrets.token_hex(16)
    address = f"http://localhost:{free}"
    # In a session of its own Ctrl-C does not reach the server: we end it ourselves.
    server = subprocess.Popen(
        _command(workspace, free),
        env=_environment(workspace, token),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        with _ended_like_ctrl_c():
            _wait_until_it_answers(server, f"{address}/api")
            url = f"{address}/lab/tree/{notebook}?token={token}"
            _announce(url, browser=has_browser() if browser is None else browser, say=say)
            return server.wait()
    except KeyboardInterrupt:
        say("\nStopping JupyterLab ...")
        return 0
    finally:
        _stop(server, address, token)


def _announce(url: str, *, browser: bool, say: Callable[[str], None]) -> None:
    opened = browser and webbrowser.open(url)
    place = "open in your browser" if opened else "ready; open this address in your browser"
    say(f"\nThe course is {place}:\n\n    {url}\n")
    say("To stop it, press Ctrl-C here. Your notebooks stay in the workspace folder.")


def free_port(wanted: int) -> int:
    """The first free port of this machine from `wanted` on.

    Raises:
      CourseError: `wanted` is no port number, or the hundred ports from it on are all taken.
    """
    if not 0 < wanted < 65536:
        raise CourseError(f"{wanted} is not a port; use a number from 1024 to 65535.")
    for port in range(wanted, min(wanted + _PORTS_TRIED, 65536)):
        if _is_free(port):
            return port
    raise CourseError(f"The ports from {wanted} on are all taken; name another with --port.")


def has_browser() -> bool:
    """Whether a graphical browser can be opened from here."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    if sys.platform == "linux" and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def _is_free(port: int) -> bool:
    """Whether nobody listens on the port, on IPv4's and (where there is one) IPv6's loopback."""
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                return False
    return True


def _command(workspace: Path, port: int) -> list[str]:
    settings: dict[str, object] = {
        "ServerApp.root_dir": workspace,
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.open_browser": False,
        "ServerApp.log_level": "ERROR",
        "LabApp.log_level": "ERROR",
        "LabApp.news_url": None,
        "LabApp.check_for_updates_class": "jupyterlab.handlers.announcements.NeverCheckForUpdate",
        "LabApp.extension_manager": "readonly",
        "KernelSpecManager.allowed_kernelspecs": "python3",
        "MappingKernelManager.transport_encryption": "auto",  # others may use this machine too
    }
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        settings["ServerApp.allow_root"] = True
    arguments = [f"--{name}={value}" for name, value in settings.items()]
    return [sys.executable, "-m", "course_lib.lab", *arguments]


def _environment(workspace: Path, token: str) -> dict[str, str]:
    """The server's variables: its token, and a place of its own for the tabs it remembers."""
    tabs = workspace / ".course" / "lab"
    tabs.mkdir(parents=True, exist_ok=True)
    others = os.environ.get("JUPYTER_CONFIG_PATH", "")
    return {
        **os.environ,
        "JUPYTER_TOKEN": token,
        "JUPYTER_PREFER_ENV_PATH": "1",  # this environment's kernel, not one of the user's
        "JUPYTERLAB_WORKSPACES_DIR": str(tabs),
        "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, (str(_CONFIG), others))),
    }


def _wait_until_it_answers(server: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise CourseError("JupyterLab ended before it answered; its own words are above.")
        try:
            _ask(url)
            return
        except OSError:
            time.sleep(0.1)
    raise CourseError(f"JupyterLab did not answer within {_START_TIMEOUT_S:g} s.")


@contextlib.contextmanager
def _ended_like_ctrl_c() -> Iterator[None]:
    """Makes a closed terminal and `kill` end us as Ctrl-C does: with the server, not without it.

    Ctrl-C itself is among them, since whoever started us may have had it ignored.
    """

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in ending}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(server: subprocess.Popen[bytes], address: str, token: str) -> None:
    """Ends the server, kernels included: asks it to, and insists where it does not."""
    with contextlib.suppress(OSError):
        _ask(f"{address}/api/shutdown", token=token, data=b"")
    for insist in (server.terminate, server.kill):
        try:
            server.wait(_STOP_TIMEOUT_S)
            return
        except subprocess.TimeoutExpired:
            insist()
    server.wait()


def _ask(url: str, *, token: str = "", data: bytes | None = None) -> None:
    """Sends a request to the server, past any proxy; raises OSError where that fails."""
    headers = {"Authorization": f"token {token}"} if token else {}
    request = urllib.request.Request(url, data=data, headers=headers)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=5):
        pass


def skip_iri_grammar() -> None:
    """Keeps jsonschema from compiling its grammar of international web addresses at import.

    That grammar takes longer to compile than the rest of Jupyter takes to
    load, every time, and no notebook uses it: jsonschema does without where
    the package is missing, so we let it look missing in this process.
    """
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


def _serve() -> None:
    """Becomes the server: JupyterLab with the arguments of the command line."""
    skip_iri_grammar()
    from jupyterlab.labapp import main

    main()


if __name__ == "__main__":
    _serve()
