"""A worker answers, and whatever a call does, the caller gets a result or a reason in time."""

import os
import threading
import time

import pytest

from course_lib.diagnostics.locations import innermost_own, locate
from course_lib.workers import RemoteError, Worker, WorkerDied, WorkerIdle, WorkerTimeout


@pytest.fixture
def worker():
    w = Worker("test")
    yield w
    w.close()


def test_it_answers_with_the_functions_result(worker):
    def outer(n):
        return [i * n for i in range(3)]

    assert worker.call(outer, 5, timeout_s=20) == [0, 5, 10]


def test_it_stays_the_same_process_between_calls(worker):
    assert worker.call(os.getpid, timeout_s=20) == worker.call(os.getpid, timeout_s=20)


def test_what_the_function_raises_comes_back_with_its_line(worker):
    def fails():
        raise ValueError("seven is too many")

    with pytest.raises(RemoteError, match="seven is too many") as caught:
        worker.call(fails, timeout_s=20)
    assert caught.value.type_name == "ValueError"
    line = fails.__code__.co_firstlineno + 1
    assert innermost_own(caught.value.frames) == locate(__file__, line, "fails")


def test_a_function_that_never_ends_is_stopped_and_the_next_call_works(worker):
    def spins():
        while True:
            pass

    with pytest.raises(WorkerTimeout):
        worker.call(spins, timeout_s=1)
    assert worker.call(len, [1, 2], timeout_s=20) == 2


def test_a_function_that_waits_for_ever_is_noticed_before_its_time_is_over(worker):
    started = time.monotonic()
    with pytest.raises(WorkerIdle):
        worker.call(lambda: threading.Event().wait(), timeout_s=60, idle_timeout_s=1)
    assert time.monotonic() - started < 20


def test_a_function_that_works_hard_is_not_taken_for_idle(worker):
    def busy(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass
        return "done"

    assert worker.call(busy, 3, timeout_s=60, idle_timeout_s=1) == "done"


def test_a_process_that_dies_says_with_which_status_and_what_it_wrote(worker):
    def dies():
        os.write(2, b"LLVM ERROR: cannot select\n")
        os._exit(7)

    with pytest.raises(WorkerDied) as caught:
        worker.call(dies, timeout_s=20)
    assert caught.value.returncode == 7
    assert "cannot select" in caught.value.stderr
    assert worker.call(len, [1], timeout_s=20) == 1


def test_memory_beyond_the_limit_is_refused_and_within_it_is_not():
    worker = Worker("small", memory_bytes=1 << 30)
    try:
        with pytest.raises(RemoteError, match="MemoryError"):
            worker.call(lambda: len(bytearray(2 << 30)), timeout_s=20)
        assert worker.call(lambda: len(bytearray(1 << 20)), timeout_s=20) == 1 << 20
    finally:
        worker.close()


def test_prints_of_the_function_do_not_disturb_the_answer(worker):
    def talks():
        print("hello" * 1000)
        os.write(1, b"raw")
        return 3

    assert worker.call(talks, timeout_s=20) == 3


def test_calls_from_several_threads_each_get_their_own_answer(worker):
    answers = {}

    def ask(n):
        answers[n] = worker.call(lambda: n * n, timeout_s=60)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert answers == {n: n * n for n in range(8)}


def test_warming_up_is_not_waited_for_and_its_failure_is_not_an_answer(worker):
    def fails():
        raise RuntimeError("not for you")

    worker.start(warm=fails)
    assert worker.call(len, [1, 2, 3], timeout_s=20) == 3


def test_an_environment_variable_can_be_set_and_removed():
    os.environ["COURSE_TEST_GONE"] = "here"
    worker = Worker("env", env={"COURSE_TEST_SET": "yes", "COURSE_TEST_GONE": None})
    try:
        seen = worker.call(lambda: dict(os.environ), timeout_s=20)
    finally:
        worker.close()
        del os.environ["COURSE_TEST_GONE"]
    assert seen["COURSE_TEST_SET"] == "yes"
    assert "COURSE_TEST_GONE" not in seen
