"""Work in processes and on a Dask cluster: results come, and a lost worker loses none of them."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from loader import workers
from loader.workers import Lost, Workers
from tests.loader.test_tune import BENCH, SOURCE
from tests.loader.work import always, blocks, hangs, hangs_in_time, meets, once, refuses, square
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
