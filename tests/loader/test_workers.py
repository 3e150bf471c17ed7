"""Work in processes and on a Dask cluster: results come, and a lost worker loses none of them."""

import json
import os
import signal
import threading
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from click.testing import CliRunner

from loader import workers
from loader.bench import results
from loader.workers import Lost, Workers
from tests.loader.test_tune import BENCH, SOURCE
from tests.loader.work import always, blocks, hangs, hangs_in_time, meets, once, refuses, released, square
from turingas.cli import main
from turingas.errors import LaunchError


@pytest.fixture(scope="module")
def two():
    """As on a machine with two GPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers.cuda, "count", lambda: 2)
        patch.setenv(workers.VISIBLE, "4,6")
        with Workers("gpus") as pool:
            yield pool


def test_here():
    with Workers("here") as pool:
        assert list(pool.run(square, [3, 4])) == [(0, 9), (1, 16)]


@pytest.mark.parametrize("asked", ["here", "2"])
def test_what_it_is_too_late_for(asked):
    """It is asked when its turn comes; what is behind it is done."""
    with Workers(asked) as pool:
        assert sorted(pool.run(square, [1, 2, 3, 4], lambda number: number in (0, 2))) == [(1, 4), (3, 16)]
        assert not list(pool.run(square, [1, 2], lambda number: True))


@pytest.mark.parametrize("asked", ["here", "2"])
def test_tasks_without_end(asked):
    """Until it is too late, and then there are no more."""
    class Endless:
        over = False

        def __len__(self):
            return 0 if self.over else 1 << 40

        def __getitem__(self, number):
            return number

    tasks = Endless()

    def late(number):
        tasks.over = number >= 5
        return tasks.over

    with Workers(asked) as pool:
        assert sorted(pool.run(square, tasks, late)) == [(n, n * n) for n in range(5)]


def test_a_process_for_each_gpu(two, tmp_path):
    assert two.count == 2 and str(two) == "2 processes"
    assert sorted(two.run(square, range(5))) == [(n, n * n) for n in range(5)]
    met = dict(two.run(meets, [tmp_path] * 2)).values()
    assert len({process for process, _ in met} - {os.getpid()}) == 2 and {gpu for _, gpu in met} == {"4", "6"}
    assert dict(two.run(blocks, [0]))[0] == (True, False)  # Ctrl-C is for the one that started it


def test_a_lost_worker_loses_no_result(tmp_path, monkeypatch):
    """What kills its worker once is done, what kills every worker is given up, and the pool is good for more."""
    monkeypatch.setattr(workers, "TRIES", 2)
    with Workers("2") as pool:
        assert sorted(pool.run(once, [(n, str(tmp_path / "dead")) for n in range(3)])) == [(n, n) for n in range(3)]
        made = dict(pool.run(always, range(3)))
        assert isinstance(made.pop(1), Lost) and made == {0: 0, 2: 2}
        assert dict(pool.run(square, [5])) == {0: 25}


def test_a_worker_that_hangs_is_lost(monkeypatch):
    monkeypatch.setattr(workers, "TRIES", 1)
    with Workers("1", seconds=0.5) as pool:
        made = dict(pool.run(hangs, range(2)))
    assert made[0] == 0 and isinstance(made[1], Lost)


def test_who_is_tried_alone_needs_no_new_pool(tmp_path):
    """But for the first: to start a process takes seconds, and all that were running are tried."""
    made = []
    with Workers("2") as pool:
        plain = pool._made
        pool._made = lambda: made.append(1) or plain()
        assert sorted(pool.run(once, [(n, str(tmp_path / "dead")) for n in range(6)])) == [(n, n) for n in range(6)]
    assert len(made) == 2


def test_a_gpu_that_hangs_ends_its_worker(monkeypatch):
    """Not a program that searches in its own process."""
    monkeypatch.setattr(workers, "TRIES", 1)
    with Workers("1") as pool:
        made = dict(pool.run(hangs_in_time, range(2)))
    assert made[0] == 0 and isinstance(made[1], Lost)
    assert hangs_in_time(2) == 2


def test_errors_come_back_whole(two):
    with pytest.raises(LaunchError) as error:
        list(two.run(refuses, [7]))
    assert error.value.hint == "because of 7"


@pytest.mark.parametrize("twice", [False, True])
def test_interrupted(twice, tmp_path):
    """Ctrl-C: what is done is kept, what is under way is waited for, nothing is begun. A second one drops what is under
    way, and no more."""
    path, told, failed = tmp_path / "found.json", [], []
    marks = {name: str(tmp_path / name) for name in "abcd"}
    Path(marks["a"]).touch()

    def seen(what):
        for _ in range(1200):
            if what():
                return
            time.sleep(0.05)
        failed.append(what)

    def press():
        seen(lambda: all(os.path.exists(marks[name] + ".begun") for name in "bc") and path.exists())
        os.kill(os.getpid(), signal.SIGINT)
        seen(lambda: told and told[-1].startswith("interrupted: what"))
        Path(marks["b"]).touch()
        seen(lambda: path.exists() and set(results.read(path)["settings"]) == {"a", "b"})
        if twice:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            Path(marks["c"]).touch()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    other = threading.Thread(target=press)
    try:
        with Workers("2") as pool:
            file = results.Results(path, {"what": "a test", "date": ""}, {})
            other.start()
            with pytest.raises(KeyboardInterrupt):
                file.spread(marks, 100, told.append, pool, released, str)
            assert sorted(pool.run(square, [2, 3])) == [(0, 4), (1, 9)]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
        other.join()
    kept = {"a", "b"} if twice else {"a", "b", "c"}
    assert not failed and set(results.read(path)["settings"]) == kept and not os.path.exists(marks["d"] + ".begun")
    assert "interrupted: what is being measured is waited for (b, c); Ctrl-C again drops it" in told
    assert [line for line in told if line.startswith("dropped")] == ["dropped, as it was being measured: c"] * twice
    assert told[-1] == f"interrupted: {len(kept)} of 4 are kept in {path}; the same command goes on"


def test_interrupted_while_a_lost_one_is_tried_again(monkeypatch):
    """It is not tried a third time, and others that were lost with it are not tried again."""
    pool, begun = Workers("2"), []

    def lost(function, task):
        begun.append(task)
        if len(begun) == 3:
            pool.interrupts = 2
        future = Future()
        future.set_exception(BrokenProcessPool("it ended"))
        return future

    monkeypatch.setattr(pool, "_submit", lost)
    found = list(pool.run(square, [1, 2, 3]))
    assert [made for _, made in found] == [Lost("interrupted")] and begun[:2] == [1, 2] and len(begun) == 3


def test_a_second_one_of_a_cluster(monkeypatch):
    """Its workers stay, so there is nothing to wait for."""
    pool, told = Workers("1"), []
    monkeypatch.setattr(pool, "_executor", object())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), pool.interruptible(lambda: told.append("once")):
            signal.raise_signal(signal.SIGINT)
            assert told == ["once"]
            signal.raise_signal(signal.SIGINT)
            told.append("on")
        assert told == ["once"] and not pool.interrupts
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_is_done_while_ctrl_c_comes_is_kept(tmp_path):
    """It comes after a setting is done, and before that is written."""
    path = tmp_path / "found.json"

    def brief(settings):
        if len(settings) == 2:
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        file = results.Results(path, {"what": "a test", "date": ""}, {})
        file.fill({"a": 1, "b": 2, "c": 3}, 9, lambda line: None, lambda *of: {"status": "ok"}, brief)
    assert set(results.read(path)["settings"]) == {"a", "b"}


@pytest.mark.parametrize("asked", ["", "0", "-1", "many", "http://there:80"])
def test_other_workers(asked):
    with pytest.raises(LaunchError, match="tcp://HOST:PORT"):
        Workers(asked)


def test_dask_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(LaunchError, match=r"pip install distributed"):
        Workers("tcp://127.0.0.1:1")


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed", reason="a Dask cluster needs the package distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as made:
        yield made


def test_dask(cluster, tmp_path):
    with Workers(cluster.scheduler_address) as pool:
        assert sorted(pool.run(square, range(5))) == [(n, n * n) for n in range(5)]
        assert len({made for _, (made, _) in pool.run(meets, [str(tmp_path)] * 2)} - {os.getpid()}) == 2
        with pytest.raises(LaunchError, match="no"):
            list(pool.run(refuses, [7]))


def test_a_search_on_a_cluster(cluster, tmp_path, monkeypatch):
    """`turingas tune` finds what it finds in this process."""
    monkeypatch.chdir(tmp_path)
    Path("two.sass").write_text(SOURCE)
    Path("two_bench.py").write_text(BENCH)
    found = []
    for asked in (cluster.scheduler_address, "here"):
        command = f"tune two.sass --bench two_bench.py --device cpu --rounds 1 --inputs 2 --json {len(found)}"
        done = CliRunner().invoke(main, [*command.split(), "--workers", asked])
        assert done.exit_code == 0, done.output
        found.append((json.loads(Path(str(len(found))).read_text()), Path("two.tuned.cubin").read_bytes()))
    assert found[0] == found[1] and found[0][0]["gained"]


def test_dask_loses_a_worker(cluster, tmp_path):
    with Workers(cluster.scheduler_address) as pool:
        assert sorted(pool.run(once, [(n, str(tmp_path / "dead")) for n in range(4)])) == [(n, n) for n in range(4)]


def test_no_cluster_there(monkeypatch):
    pytest.importorskip("distributed", reason="a Dask cluster needs the package distributed")
    monkeypatch.setattr(workers, "ANSWER", 0.5)
    with pytest.raises(LaunchError, match="no Dask scheduler answers"):
        Workers("tcp://127.0.0.1:9")
