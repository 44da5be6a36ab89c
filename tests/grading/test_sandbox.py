# ruff: noqa: E501
"""The walls of the sandbox, attacked."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

from course_lib.grading import course_copy, hurdles, sandbox, walls
from course_lib.grading.sandbox import Limits, NoSandbox, Outcome, Sandbox
from course_lib.grading.sandbox_inside import HEAD
from tests.grading import unprivileged
from tests.grading.answers import box

pytestmark = pytest.mark.needs("bubblewrap")

ROOT = Path(__file__).resolve().parents[2]


def attack(code: str, *, course: str = "", keep: tuple[str, ...] = (), **limits: float) -> Outcome:
    """What comes of a piece of Python in the sandbox."""
    return box().run(
        ["python", "-c", code], course=course, keep=keep,
        limits=Limits(**{"wall_s": 20, "cpu_s": 20, **limits}),  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_harmless_command_does_what_it_should():
    code = "print(open('in/x.txt').read()); open('out.json', 'w').write('{}')"
    out = box().run(
        ["python", "-c", code], inputs={"in/x.txt": b"hello"}, keep=("*.json",), course=""
    )
    assert (out.rc, out.stdout, out.stderr, out.killed_for) == (0, "hello\n", "", "")
    assert out.files == {"out.json": b"{}"}


def test_it_runs_as_nobody_in_particular_and_alone():
    said = attack("import os; print(os.getuid(), os.getpid(), os.listdir('/proc'))").stdout
    uid, pid, rest = said.split(maxsplit=2)
    assert int(uid) != 0
    assert int(pid) < 20
    assert sum(p.strip(" ',[]\n").isdigit() for p in rest.split()) < 8


SECRETS = [
    ROOT / "solutions", ROOT / "tests" / "wrong_answers", ROOT / "course_lib", ROOT / ".git",
    ROOT / "notebooks", Path("/etc/shadow"), Path("/root/.ssh"), Path("/home"), Path("/var"),
]  # fmt: skip


def test_none_of_the_hosts_files_can_be_read():
    code = f"""
import os
for path in {[str(p) for p in SECRETS]}:
    if os.path.exists(path) and (os.path.isfile(path) or os.listdir(path)):
        print("found", path)
for folder, _, files in os.walk("/"):
    if folder.startswith(("/proc", "/sys")):
        continue
    for name in files:
        if name.endswith(("_start_here.md", "_start_here.ipynb")) or name == "hand_off.py":
            print("found", folder, name)
"""
    assert attack(code).stdout == ""


def test_the_walk_would_find_them_outside():
    assert [p for p in SECRETS if os.path.exists(p)][:2] == SECRETS[:2]


def test_the_sealed_course_has_neither_exercises_nor_references_nor_grading():
    code = """
import os
home = "/sandbox/course/course_lib/"
print(sorted(os.listdir(home + "exercises")), os.listdir(home + "grading"))
text = open(home + "kernels/wgmma_pipelining.py").read()
start = text.index("def roofline_reference")
print("holds no references" in text[start:start + 400])
print(sum("def _product" in open(os.path.join(f, n)).read() for f, _, ns in os.walk(home) for n in ns if n.endswith(".py")))
"""
    out = attack(code, course="sealed")
    exercises, answer = out.stdout.split("\n", 1)
    assert "start_here.py" not in exercises
    assert "judging.py" in exercises
    assert "marking.py" not in exercises
    assert answer.split()[0] == "True"


def test_references_lose_their_bodies_and_nothing_moves():
    text = (
        "def a_reference(x):\n    '''Doc.'''\n    y = x\n    return y\n\n\ndef b():\n    return 1\n"
    )
    sealed = course_copy.without_references(text)
    assert sealed.count("\n") == text.count("\n")
    names: dict[str, object] = {}
    exec(sealed, names)
    assert names["b"]() == 1  # type: ignore[operator]
    with pytest.raises(RuntimeError, match="no references"):
        names["a_reference"](1)  # type: ignore[operator]


@pytest.mark.parametrize(
    "path", ["/x", "/dev/x", "/usr/x", "/sandbox/course/x", "/sandbox/x", f"{Path.home()}/x"]
)
def test_nothing_can_be_written_but_in_two_folders(path):
    out = attack(f"open({path!r}, 'w').write('x')")
    assert out.rc == 1
    assert "Error" in out.stderr


def test_what_is_written_beside_the_report_stays_inside(tmp_path):
    target = tmp_path / "grades.csv"
    target.write_text("right\n")
    os.chmod(tmp_path, 0o777)
    os.chmod(target, 0o666)
    attack(
        f"import os; os.makedirs({str(tmp_path)!r}, exist_ok=True); open({str(target)!r}, 'w').write('me,100')"
    )
    assert target.read_text() == "right\n"


def test_there_is_no_network():
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    server.settimeout(3)
    code = f"""
import socket
for address in [("127.0.0.1", {port}), ("1.1.1.1", 53), ("10.0.0.1", 80)]:
    try:
        socket.create_connection(address, 2)
        print("reached", address)
    except OSError as error:
        print("no")
try:
    print("resolved", socket.getaddrinfo("localhost.localdomain.example", 80))
except OSError:
    print("no")
"""
    assert attack(code).stdout == "no\n" * 4
    with pytest.raises(TimeoutError):
        server.accept()
    server.close()


def test_neither_the_parent_nor_anybody_else_can_be_killed():
    victim = psutil.Process()
    code = f"""
import os, signal
for pid in [{victim.pid}, os.getppid(), -1, 1]:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError as error:
        print(type(error).__name__)
"""
    attack(code)
    assert victim.is_running()


def test_a_fork_bomb_ends_and_leaves_nothing():
    code = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
    out = attack(code, processes=40, wall_s=3)
    assert out.killed_for in ("time", "")
    assert not [
        p
        for p in psutil.process_iter(["cmdline"])
        if "os.fork()" in " ".join(p.info["cmdline"] or ())
    ]


def test_a_child_that_outlives_its_parent_does_not():
    code = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        marker = "left-behind-on-purpose"
        time.sleep(300)
"""
    out = attack(code)
    assert out.rc == 0
    assert out.seconds < 15
    time.sleep(0.2)
    left = [
        p
        for p in psutil.process_iter(["cmdline"])
        if "left-behind-on-purpose" in " ".join(p.info["cmdline"] or ())
    ]
    assert left == []


def test_more_memory_than_allowed_is_not_to_be_had():
    code = "x = [bytearray(1 << 26) for _ in range(100)]"
    out = attack(code, memory_bytes=1 << 30)
    assert out.rc != 0


@pytest.mark.slow
def test_nor_by_many_processes_together():
    code = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        x = bytearray(300 << 20)
        for i in range(0, len(x), 4096):
            x[i] = 1
        time.sleep(60)
time.sleep(60)
"""
    out = attack(code, memory_bytes=1 << 30, wall_s=60)
    assert out.killed_for == "memory"
    assert out.seconds < 60


@pytest.mark.parametrize("folder", [".", "/tmp", "/dev/shm"])
def test_the_disk_cannot_be_filled(folder):
    code = f"""
written = 0
try:
    for number in range(100):
        with open(f"{folder}/{{number}}", "wb") as file:
            written += file.write(bytes(1 << 20))
except OSError:
    pass
print(written >> 20)
"""
    assert int(attack(code, disk_bytes=16 << 20).stdout) <= 16


def test_nor_by_one_large_file():
    out = attack("open('x', 'wb').truncate(1 << 40)", file_bytes=1 << 20)
    assert out.rc != 0


def test_endless_output_is_cut_off_and_stopped():
    out = attack("while True: print('x' * 10_000)", output_bytes=10_000)
    assert len(out.stdout) == 10_000
    assert out.killed_for == "output"


@pytest.mark.parametrize("code", ["while True: pass", "import time; time.sleep(1000)"])
def test_what_never_ends_is_stopped(code):
    out = attack(code, wall_s=1.5)
    assert out.timed_out
    assert out.killed_for == "time"
    assert out.seconds < 12


def test_what_takes_too_much_processor_time_is_stopped():
    out = attack("while True: pass", cpu_s=1, wall_s=30)
    assert out.rc in (-9, 137, -24, 152)


def test_links_do_not_come_back():
    code = """
import os
os.symlink("/etc/passwd", "a.json")
os.symlink("/proc/1/environ", "b.json")
os.symlink("..", "up")
os.mkfifo("c.json")
os.mkdir("d.json")
os.link("real.json", "e.json") if os.path.exists("real.json") else None
open("f.json", "w").write("f")
"""
    assert attack(code, keep=("*.json", "up/*")).files == {"f.json": b"f"}


def test_names_that_lead_elsewhere_and_sizes_that_lie_are_dropped():
    def record(name: bytes, content: bytes, size: int | None = None) -> bytes:
        return HEAD.pack(len(name), len(content) if size is None else size) + name + content

    limits = Limits()
    stream = (
        record(b"", b"0")
        + record(b"../x", b"1")
        + record(b"/etc/x", b"2")
        + record(b"a/../b", b"3")
    )
    status, files = sandbox.unpack(
        stream + record(b"ok", b"4") + record(b"big", b"5", 1 << 40), limits
    )
    assert (status, files) == (0, {"ok": b"4"})
    assert sandbox.unpack(b"\xff" * 1000, limits) == (None, {})
    assert sandbox.unpack(record(b"", b"rubbish"), limits) == (None, {})


def test_the_environment_of_the_host_is_not_seen(monkeypatch):
    monkeypatch.setenv("A_SECRET_TOKEN", "hunter2")
    out = attack("import os; print(dict(os.environ)); print(open('/proc/self/environ').read())")
    assert "hunter2" not in out.stdout


KEYS = """
import ctypes, os, sys
keyctl, add_key = {"x86_64": (250, 248), "aarch64": (219, 217)}[os.uname().machine]
libc = ctypes.CDLL(None)
if "mine" in sys.argv:
    libc.syscall(keyctl, 1, None)
    libc.syscall(add_key, b"user", b"ticket", b"hunter2", 7, -3)
key, found = libc.syscall(keyctl, 10, -3, b"user", b"ticket", 0), ctypes.create_string_buffer(50)
libc.syscall(keyctl, 11, key, found, 50)
print("found", found.value.decode(), flush=True)
"""


def test_the_graders_keyring_stays_outside():
    inside = "from course_lib.grading.sandbox import Sandbox\n"
    inside += f"print(Sandbox().run(['python', '-c', {KEYS!r}], course='').stdout)"
    done = subprocess.run(
        [sys.executable, "-c", f"{KEYS}\n{inside}", "mine"], text=True, capture_output=True,
        timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    first, second = done.stdout.split("\n")[:2]
    assert first in ("found hunter2", "found ")  # where a container has no keyrings
    assert second == "found ", done.stderr


def test_it_cannot_make_a_namespace_of_its_own():
    code = "import os\ntry:\n    os.unshare(os.CLONE_NEWUSER)\n    print('made')\nexcept OSError:\n    print('no')"
    assert attack(code).stdout == "no\n"


def test_two_at_once_do_not_see_each_other():
    outs: list[Outcome] = []
    code = (
        "import os, time, uuid; open(f'/tmp/mine-{uuid.uuid4()}', 'w').write('x'); time.sleep(1); "
        "print(sum(name.startswith('mine-') for name in os.listdir('/tmp')))"
    )
    threads = [threading.Thread(target=lambda: outs.append(attack(code))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [o.stdout for o in outs] == ["1\n"] * 2


def test_a_sandbox_travels_to_other_processes():
    assert pickle.loads(pickle.dumps(box())) == box()


def test_a_fork_bomb_takes_no_process_from_another_sandbox():
    outs: dict[str, Outcome] = {}
    many = """
import subprocess, time
time.sleep({wait})
try:
    started = [subprocess.Popen(["sleep", "4"]) for _ in range({count})]
except OSError:
    started = []
print(len(started))
time.sleep(3)
"""

    def run(name: str, wait: float, count: int, limit: int) -> None:
        outs[name] = attack(many.format(wait=wait, count=count), processes=limit)

    threads = [
        threading.Thread(target=run, args=("modest", 2, 20, 40)),
        threading.Thread(target=run, args=("greedy", 0.5, 70, 90)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (outs["modest"].stdout, outs["greedy"].stdout) == ("20\n", "70\n")
    assert attack(many.format(wait=0, count=70), processes=40).stdout == "0\n"


PROBE = "from course_lib.grading.sandbox import Sandbox; print(Sandbox.probe())"


def probed(
    *before: str, python: str = sys.executable, home: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """What comes of a probe in a process of its own, started by other commands."""
    return subprocess.run(
        [*before, python, "-c", PROBE], cwd="/", text=True, capture_output=True, timeout=120,
        env=unprivileged.environment(home) if home else {**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_all_of_it_holds_without_root():
    if os.getuid() != 0:
        return  # it has been run so
    with unprivileged.open_folder() as folder:
        env = unprivileged.environment(folder / "home")
        tests = unprivileged.command(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp",
             str(folder / "home" / "tests"), str(Path(__file__).resolve())]
        )  # fmt: skip
        done = subprocess.run(tests, cwd=ROOT, env=env, text=True, capture_output=True, timeout=900)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


def test_without_user_namespaces_it_refuses_and_says_which_switch(tmp_path):
    forbid = "echo 0 > /proc/sys/user/max_user_namespaces"
    lose = "setpriv --ambient-caps=-all --inh-caps=-all"
    inside = ["unshare", "-U", "--map-current-user", "--keep-caps", "sh", "-c"]
    for first, says in ((forbid, "sysctl user.max_user_namespaces=1000"), ("true", "")):
        line = unprivileged.command([*inside, f'{first}; exec {lose} "$@"', "sh"])
        done = probed(*line, home=tmp_path / "home")
        if says:
            assert "No sandbox: bwrap was tried and did not start" in done.stderr
            assert says in done.stderr
        else:
            assert done.stdout == "Sandbox(unsafe=False)\n"


@pytest.mark.parametrize(
    ("name", "forbids", "allows", "says"),
    [
        ("kernel/unprivileged_userns_clone", "0", "1", "sysctl kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "5", "sysctl user.max_user_namespaces=1000"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "0", "give bwrap a profile"),
    ],
)
def test_what_a_kernel_forbids_is_named(tmp_path, monkeypatch, name, forbids, allows, says):
    monkeypatch.setattr(hurdles, "_PROC", tmp_path)
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text(f"{forbids}\n")
    assert says in hurdles.forbidden("it said no")
    assert "--security-opt" not in hurdles.forbidden("it said no")
    (tmp_path / name).write_text(f"{allows}\n")
    assert says not in hurdles.forbidden("it said no")
    assert "--security-opt" in hurdles.forbidden("it said no")


@pytest.mark.parametrize(
    ("version", "says"),
    [("0.6.1", "is bubblewrap 0.6.1, and 0.8 or newer is needed"), ("0.8.0", ""), ("1.0", "")],
)
def test_a_bubblewrap_that_is_too_old_is_named(tmp_path, monkeypatch, version, says):
    (tmp_path / "bwrap").write_text(f"#!/bin/sh\necho bubblewrap {version}\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert says in hurdles.missing([])
    assert bool(says) is bool(hurdles.missing([]))
    (tmp_path / "bwrap").chmod(0o4755)
    assert f"chmod u-s {tmp_path}/bwrap" in hurdles.forbidden("not permitted in setuid mode")


def test_a_python_behind_a_link_is_found_inside(tmp_path):
    (tmp_path / "my home").symlink_to(Path(sys.prefix).parent)
    (tmp_path / "twice").symlink_to("my home")
    python = f"{tmp_path}/twice/{Path(sys.prefix).name}/bin/{Path(sys.executable).name}"
    done = probed(python=python)
    assert done.stdout == "Sandbox(unsafe=False)\n", done.stderr


def test_of_a_home_with_a_python_in_its_bin_nothing_else_is_seen(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "secret").write_text("hunter2")
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    out = attack(
        f"import os, sys; print(sys.executable, os.listdir({str(tmp_path)!r}), "
        f"os.listdir({str(tmp_path / 'bin')!r}))"
    )
    assert out.stdout == f"{tmp_path}/bin/python ['bin'] ['python']\n", out.stderr


def test_a_user_with_lower_limits_gets_a_sandbox_with_these():
    done = probed("prlimit", "--nofile=512:512", "--fsize=50000000:50000000", "--")
    assert done.stdout == "Sandbox(unsafe=False)\n", done.stderr


def test_a_temporary_folder_that_is_its_owners_only_is_no_hindrance(tmp_path, monkeypatch):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(closed))
    assert attack("print('it ran')").stdout == "it ran\n"
    monkeypatch.undo()
    with unprivileged.open_folder() as folder:
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        assert walls.open_temporary_folder() is None


def test_nothing_runs_when_its_inputs_are_cut_off(monkeypatch):
    whole = sandbox._bundle({"x.txt": b"hello"})
    monkeypatch.setattr(sandbox, "_bundle", lambda inputs: whole[:-1])
    monkeypatch.setattr(sandbox._Watch, "_feed", _feed_and_close)
    assert attack("print('it ran')").stdout == ""
    monkeypatch.setattr(sandbox, "_bundle", lambda inputs: whole)
    assert attack("print('it ran')").stdout in ("it ran\n", "")  # or it heard of our end first


def _feed_and_close(watch: sandbox._Watch, bundle: bytes) -> None:
    assert watch.process.stdin is not None
    with watch.process.stdin as stdin:
        stdin.write(bundle)


def test_it_ends_when_the_pipe_of_its_inputs_does(monkeypatch):
    monkeypatch.setattr(sandbox._Watch, "_feed", _feed_and_close)
    out = attack("import time; time.sleep(15)")
    assert out.seconds < 10
    monkeypatch.undo()
    assert attack("import time; time.sleep(1); print('whole')").stdout == "whole\n"


def test_without_the_programs_it_says_how_to_get_them(monkeypatch):
    monkeypatch.setattr(walls.shutil, "which", lambda name: None)
    with pytest.raises(NoSandbox, match="apt install bubblewrap") as error:
        Sandbox.probe()
    assert "--unsafe-no-sandbox" in str(error.value)


def test_where_it_does_not_start_it_says_why(monkeypatch):
    failed = Outcome(1, "", "bwrap: No permissions to create new namespace\n")
    monkeypatch.setattr(Sandbox, "run", lambda *a, **k: failed)
    with pytest.raises(NoSandbox, match="No permissions to create new namespace") as error:
        Sandbox.probe()
    assert "sysctl" in str(error.value)


def test_without_a_sandbox_time_and_files_are_limited_all_the_same():
    open_box = Sandbox.probe(unsafe=True)
    assert open_box.unsafe
    out = open_box.run(
        ["python", "-c", "open('a.json', 'w').write('1'); import time; time.sleep(100)"],
        keep=("*.json",), limits=Limits(wall_s=1), course="",
    )  # fmt: skip
    assert (out.killed_for, out.files) == ("time", {"a.json": b"1"})


def test_what_only_root_can_reach_is_known(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    for folder in (tmp_path, *tmp_path.parents):
        if folder.parent == folder or folder == Path("/tmp"):
            break
    os.chmod(tmp_path, 0o700)
    assert not walls.everybody_reaches(inner)
    assert walls.everybody_reaches(Path("/usr"))


def test_a_python_below_tmp_is_not_hidden(tmp_path):
    rooms = walls.Rooms("", str(tmp_path), extra=((str(tmp_path), "/tmp/python"),))
    argv = walls.command(
        ["true"], limits=Limits(), rooms=rooms, keep=(), results_fd=3, env=walls.environment(False)
    )
    scratch = next(i for i in range(len(argv)) if argv[i : i + 2] == ["--tmpfs", "/tmp"])
    assert scratch < argv.index("--ro-bind") < argv.index("/tmp/python")
