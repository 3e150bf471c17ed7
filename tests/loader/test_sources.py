"""Cubins straight from the tools: fat binaries, objects, folders of Triton's cache, what Triton and CuPy hold."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import loader
import turingas
from tests.cubin.test_fatbin import packed
from turingas.cli import main
from turingas.cubin.cubin import Cubin
from turingas.errors import AsmError, CubinError, LaunchError

CUDA = 'extern "C" __global__ void scale(int* x, int by) { x[threadIdx.x] *= by; }'


def made(arch, **kernels):
    """A cubin of kernels that multiply by a number."""
    texts = [f".arch {arch}"] + [
        f".kernel {name}\n<params>\ninput, 8\n</params>\n"
        "--:-:0:-:1  S2R R0, SR_TID.X;\n--:-:-:-:6  MOV R3, 4;\n01:-:-:-:8  IMAD.WIDE R2, R0, R3, input;\n"
        f"--:-:0:-:2  LDG.E.SYS R4, [R2];\n01:-:-:-:6  IMAD R4, R4, {by}, RZ;\n--:-:-:-:1  STG.E.SYS [R2], R4;\n"
        "--:-:-:-:5  EXIT;"
        for name, by in kernels.items()
    ]
    return turingas.assemble("\n".join(texts)).to_bytes()


@pytest.fixture(scope="module")
def cubins():
    return {"sm_70": made("sm_70", twice=2), "sm_75": made("sm_75", twice=2, _Z6tripleIiEvPT_=3, _Z6triplef=30)}


@pytest.fixture(scope="module")
def fatbin(cubins):
    return b"".join(packed(data, 0x11, data, int(arch[3:])) for arch, data in cubins.items())


@pytest.fixture(scope="module")
def program(fatbin):
    """The bytes of a program of the host: all that counts is that it is one, and what stands in it."""
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\x3e\x00"
    return header + bytes(100) + fatbin + b"more"


def ran(module, name=None):
    x = np.arange(32, dtype=np.int32)
    module.kernel(name).launch(1, 32, x)
    return x[1]


@pytest.mark.parametrize("source", ["fatbin", "program"])
def test_kernels_by_name_and_architecture(source, tmp_path, request):
    data = request.getfixturevalue(source)
    path = tmp_path / "libmine.so"
    path.write_bytes(data)
    for what in (data, path, str(path)):
        assert ran(loader.load(what, "cpu", arch="sm_70")) == 2
        assert ran(loader.load(what, "cpu", kernel="twice", arch="sm_75")) == 2
        assert ran(loader.load(what, "cpu", kernel="_Z6triplef")) == 30
    with pytest.raises(
        LaunchError, match=r"2 kernels are called triple\nhint: kernel= and arch= .*\n  sm_75   _Z6trip"
    ):
        loader.load(data, "cpu", kernel="triple")
    with pytest.raises(LaunchError, match=r"2 kernels are called twice\n.*:\n  sm_70   twice.*\n  sm_75   twice"):
        loader.load(data, "cpu", kernel="twice")
    with pytest.raises(LaunchError, match=r"2 cubins fit"):
        loader.load(data, "cpu")
    with pytest.raises(LaunchError, match=r"no kernel 'thrice' in .*\n.*\n  sm_70   twice \(number 1\)"):
        loader.load(path, "cpu", kernel="thrice")
    with pytest.raises(LaunchError, match=r"no cubin for sm_90 in .*\n.*cubins for sm_70, sm_75"):
        loader.load(path, "cpu", kernel="twice", arch="sm_90")


def test_a_source(tmp_path):
    """As `turingas run` takes it: assembled, for the architecture that it names, else for the one that is asked for."""
    path = tmp_path / "by.sass"
    path.write_text("<params>\nx, 8\n</params>\nS2R R0, SR_TID.X;\nMOV R3, 4;\nIMAD.WIDE R2, R0, R3, x;\n"
                    "IMAD R4, R0, {BY}, RZ;\nSTG.E [R2], R4;\nEXIT;\n")  # fmt: skip
    assert ran(loader.load(path, "cpu", defines={"BY": 3})) == 3
    with pytest.raises(AsmError, match=r"by.sass:7:\d+: error: .*BY(?s:.)*7 \| IMAD"):
        loader.load(str(path), "cpu")
    with pytest.raises(LaunchError, match="'other'\nhint: there are: kern"):
        loader.load(path, "cpu", kernel="other", defines={"BY": 3}).kernel()
    archs = [loader.load(path, "cpu", defines={"BY": 3}, **more).cubin.arch for more in ({}, {"arch": "sm_90"})]
    assert archs == ["sm_75", "sm_90"]
    (tmp_path / "part.sass").write_text("EXIT;\n")
    path.write_text(".arch sm_80\n.include part.sass\n")
    assert loader.load(path, "cpu", arch="sm_90").cubin.arch == "sm_80"


def test_sources_that_are_not_taken(cubins, tmp_path):
    path = tmp_path / "odd.sass"
    path.write_text("<code>\nprint('EXIT;')\n</code>\n")
    with pytest.raises(AsmError, match=r"odd.sass:1:\d*:? ?error: .*inline Python"):
        loader.load(path, "cpu", allow_python=False)
    path.write_bytes(b"\xffEXIT;")
    with pytest.raises(AsmError, match="odd.sass:1:1: error: byte 0xff is not UTF-8"):
        loader.load(path, "cpu")
    path.write_text(".version 8.0\n.target sm_80\n")
    with pytest.raises(LaunchError, match="not source but PTX"):
        loader.load(path, "cpu")
    path.write_bytes(cubins["sm_70"])  # a cubin, whatever it is called
    assert ran(loader.load(path, "cpu")) == 2
    with pytest.raises(LaunchError, match="are for sources"):
        loader.load(path, "cpu", defines={"N": 1})
    with pytest.raises(FileNotFoundError):
        loader.load(tmp_path / "none.sass", "cpu")


def test_a_gpu_has_its_sources_assembled_for_itself(tmp_path):
    from loader.sources import found

    path = tmp_path / "exit.sass"
    path.write_text("EXIT;\n")
    assert found(path, None, None, lambda arch: True, "sm_86").cubin.arch == "sm_86"


def test_names_of_cpp(cubins):
    module = loader.load(cubins["sm_75"], "cpu")
    with pytest.raises(LaunchError, match="2 kernels 'triple'\n.*_Z6tripleIiEvPT_, _Z6triplef"):
        module.kernel("triple")
    assert ran(loader.load(made("sm_75", _Z6tripleIiEvPT_=3, other=1), "cpu"), "triple") == 3


def test_a_gpu_takes_the_newest_that_it_runs(fatbin):
    from loader.sources import found

    assert found(fatbin, "twice", None, lambda arch: arch in ("sm_70", "sm_75")).cubin.arch == "sm_75"
    with pytest.raises(LaunchError, match="no cubin for this GPU in these bytes\n.*sm_70, sm_75"):
        found(fatbin, "twice", None, lambda arch: arch == "sm_90")


def test_cubins_without_kernels_are_no_choice(cubins):
    """nvcc links an empty one into each program and shared library."""
    empty = Cubin("sm_70").to_bytes()
    data = b"".join(packed(one, 0x11, one, 70) for one in (empty, cubins["sm_70"]))
    assert ran(loader.load(data, "cpu")) == 2


def test_files_without_cubins_and_damaged_ones(fatbin, program, tmp_path):
    with pytest.raises(LaunchError, match="no cubin in these bytes\n.*PTX alone"):
        loader.load(program[:100], "cpu")
    with pytest.raises(LaunchError, match="no cubin in this folder"):
        loader.load(tmp_path, "cpu")
    damaged = packed(b"\x7fELF" + bytes(100), 0x11, b"\x7fELF" + bytes(100))
    with pytest.raises(CubinError):
        loader.load(damaged, "cpu")
    assert ran(loader.load(fatbin + damaged, "cpu", arch="sm_70")) == 2
    with pytest.raises(CubinError, match="^of type float, which is no cubin; it must be a path"):
        loader.load(2.5, "cpu")
    with pytest.raises(LaunchError, match="is for sm_70, not for sm_80"):
        loader.load(made("sm_70", twice=2), "cpu", arch="sm_80")


def cache(folder, **cubins):
    """As Triton keeps kernels: a folder each, a .json beside each cubin."""
    for hashed, (data, name) in cubins.items():
        place = folder / hashed
        place.mkdir(parents=True)
        (place / f"{name}.cubin").write_bytes(data)
        (place / f"{name}.json").write_text(json.dumps({"num_warps": 2, "shared": 512, "name": name}))
        (place / f"__grp__{name}.json").write_text("{}")


def test_a_folder_of_tritons_cache(cubins, tmp_path):
    cache(tmp_path, ABC=(cubins["sm_70"], "twice"), DEF=(made("sm_75", half=5), "half"))
    assert ran(loader.load(tmp_path, "cpu", kernel="half")) == 5
    assert ran(loader.load(tmp_path / "ABC", "cpu")) == 2
    with pytest.raises(LaunchError, match=r"2 cubins fit\n.*\n.*ABC.twice.cubin\)\n.*DEF.half.cubin"):
        loader.load(tmp_path, "cpu")
    runner = CliRunner()
    found = runner.invoke(main, ["run", str(tmp_path), "i32[64]=1", "--kernel", "half"])
    assert found.exit_code == 0 and "5 5 5" in found.output.replace(",", ""), found.output  # two warps, as Triton wrote
    assert runner.invoke(main, ["run", str(tmp_path), "i32[32]=1", "--kernel", "half"]).exit_code == 1
    found = runner.invoke(main, ["run", str(tmp_path / "DEF/half.cubin"), "i32[32]=1", "--block", "32"])
    assert found.exit_code == 0, found.output
    assert runner.invoke(main, ["run", str(tmp_path), "i32[64]=1", "--arch", "sm_80"]).exit_code == 1


SCRATCH = """
.arch sm_90
.kernel fills
<params>
out, 8
scratch, 8
profile, 8
</params>
S2R R0, SR_CTAID.X;
MOV R6, 0x4;
IMAD.WIDE.U32 R2, R0, R6, scratch;
STG.E [R2], R0;
LDG.E R4, [R2];
IADD3 R4, R4, profile, RZ;
IMAD.WIDE.U32 R2, R0, R6, out;
STG.E [R2], R4;
EXIT;
"""


def test_scratch_memory_of_tritons_kernels(tmp_path):
    """From 3.2 on they have pointers behind the function's own: memory if Triton wants some, for all blocks, else 0."""
    cubin = turingas.assemble(SCRATCH).to_bytes()
    cache(tmp_path, ABC=(cubin, "fills"))
    runner, words = CliRunner(), ["run", str(tmp_path / "ABC/fills.cubin"), "i32[4]", "--grid", "4"]
    assert "takes 3 arguments and was given 1" in runner.invoke(main, words).output
    facts = {"num_warps": 1, "shared": 0, "global_scratch_size": 4, "profile_scratch_size": 0}
    (tmp_path / "ABC/fills.json").write_text(json.dumps(facts))
    found = runner.invoke(main, words)
    assert found.exit_code == 0 and "0 1 2 3" in found.output, found.output


def test_tritons_compiled_kernels(cubins):
    compiled = SimpleNamespace(
        asm={"cubin": cubins["sm_70"]}, metadata=SimpleNamespace(name="twice", num_warps=1, shared=0)
    )
    assert ran(loader.load(compiled, "cpu")) == 2
    compiled.asm = {"ptx": "..."}
    with pytest.raises(LaunchError, match="no cubin\n.*ptx"):
        loader.load(compiled, "cpu")
    function = type("JITFunction", (), {"__module__": "triton.runtime.jit"})()
    with pytest.raises(LaunchError, match="not compiled yet\n.*triton_launch"):
        loader.load(function, "cpu")


def cupys(name, /, **values):
    """What CuPy's objects show of themselves: seen on CuPy 14.2, which is too large for the tests."""
    values = {"code": None, "file_path": None, "options": (), **values}
    return type(name, (), {"__module__": "cupy._core.raw", **values})()


def test_cupys_modules_and_kernels(cubins, tmp_path):
    pytest.importorskip("nvidia.cuda_nvrtc", reason="NVRTC is not installed")
    source = CUDA + ' extern "C" __global__ void other() {}'
    x = np.arange(32, dtype=np.int32)
    loader.load(cupys("RawKernel", code=source, name="scale"), "cpu").kernel().launch(1, 32, x, 7)
    assert x[1] == 7
    module = loader.load(cupys("RawModule", code=CUDA, options=("-DX",)), "cpu", arch="sm_90")
    assert module.cubin.arch == "sm_90" and module.kernel().name == "scale"
    (tmp_path / "a.cubin").write_bytes(cubins["sm_70"])
    assert ran(loader.load(cupys("RawModule", file_path=str(tmp_path / "a.cubin")), "cpu")) == 2


def test_validate_and_tune_take_them(tmp_path, monkeypatch):
    """As run does: a kernel of an architecture, out of what holds several."""
    monkeypatch.chdir(tmp_path)
    cubins = [made(arch, nought=0, twice=2) for arch in ("sm_70", "sm_75")]
    both = (packed(data, 0x11, data, int(arch)) for arch, data in zip(("70", "75"), cubins))
    (tmp_path / "libmine.so").write_bytes(b"".join(both))
    (tmp_path / "truth.py").write_text("import numpy as np\ndef nought(x):\n    return np.zeros(32)\n")
    (tmp_path / "bench.py").write_text('grid, block = 1, 32\narguments = ["i32[32]=arange"]\n')
    which = ["--arch", "sm_70", "--kernel", "nought", "--device", "cpu"]
    found = CliRunner().invoke(main, ["validate", "libmine.so", "i32[32]", "--block", "32", "--truth",
                                      "truth.py:nought", *which])  # fmt: skip
    assert found.exit_code == 0 and "match" in found.output, found.output
    found = CliRunner().invoke(main, ["validate", "libmine.so", "i32[32]", "--kernel", "nought"])
    assert found.exit_code == 1 and "sm_75" in found.output  # several: it says which
    words = ["--bench", "bench.py", "--rounds", "1", "--workers", "1", *which]
    found = CliRunner().invoke(main, ["tune", "libmine.so", *words])
    assert found.exit_code == 0 and (tmp_path / "libmine.tuned.cubin").exists(), found.output
