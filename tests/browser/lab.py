"""JupyterLab on a free port with a notebook folder of its own, for browser tests."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

START_S = 60.0


@dataclasses.dataclass(frozen=True)
class Lab:
    """A running JupyterLab.

    Attributes:
      address: "http://127.0.0.1:port".
      token: what it asks for.
    """

    address: str
    token: str

    def page(self, path: str = "") -> str:
        """The URL that opens a file, with no memory of earlier visits."""
        return f"{self.address}/lab/tree/{path}?token={self.token}&reset"

    def wait_for_kernel(self) -> None:
        """Returns once a page is connected to an idle kernel; cells run before are lost."""
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if any(k["execution_state"] == "idle" and k["connections"] for k in self._kernels()):
                return
            time.sleep(0.2)
        raise RuntimeError(f"no page was connected to an idle kernel within {START_S:.0f} s")

    def _kernels(self) -> list[dict[str, Any]]:
        """What the server says of its kernels; nothing while one of them is only starting."""
        try:
            with urllib.request.urlopen(f"{self.address}/api/kernels?token={self.token}") as answer:
                kernels: list[dict[str, Any]] = json.load(answer)
        except urllib.error.HTTPError:  # 500: a kernel that has no state yet
            return []
        return kernels


@contextlib.contextmanager
def jupyter_lab(folder: Path, *, theme: str = "JupyterLab Light") -> Iterator[Lab]:
    """Serves `folder` until the block ends.

    The server's configuration, settings and workspaces lie in `folder/.jupyter`,
    so that nothing of the user's own JupyterLab is read or written.
    """
    private = folder / ".jupyter"
    settings = private / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "themes.jupyterlab-settings").write_text(f'{{"theme": "{theme}"}}')
    notification = '{"checkForUpdates": false, "doNotDisturbMode": true, "fetchNews": "false"}'
    (settings / "notification.jupyterlab-settings").write_text(notification)
    port, token = _free_port(), secrets.token_hex(16)
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", "--ServerApp.port_retries=0"),
        *(f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"),
        f"--LabApp.user_settings_dir={private / 'lab' / 'user-settings'}",
        f"--LabApp.workspaces_dir={private / 'lab' / 'workspaces'}",
    ]
    environment = {**os.environ, "JUPYTER_CONFIG_DIR": str(private), "JAX_PLATFORMS": "cpu"}
    with (folder / "lab.log").open("w") as log:
        server = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        lab = Lab(f"http://127.0.0.1:{port}", token)
        _wait(f"{lab.address}/api/status?token={token}", server)
        yield lab
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not answer within {START_S:.0f} s")
