"""JupyterLab on a free port with a notebook folder of its own, for browser tests."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

START_S = 60.0


@contextlib.contextmanager
def jupyter_lab(folder: Path, *, theme: str = "JupyterLab Light") -> Iterator[str]:
    """Serves `folder`; yields the address, to which `/tree/NAME.ipynb?token=...` is added.

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
        _wait(f"http://127.0.0.1:{port}/api/status?token={token}", server)
        yield f"http://127.0.0.1:{port}/lab{{}}?token={token}&reset"
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
