"""Matrix products of CUTLASS as its own host code launches them (tests/kernels/cutlass.cu), for the CPU device:
pipelines of cp.async, tensor copies, warp groups that take turns or share a tile, clusters with multicast. Needs nvcc
and a checkout of CUTLASS 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.tools import recorder

SOURCE = Path(__file__).parents[1] / "kernels" / "cutlass.cu"
BUILT = Path(__file__).parents[2] / ".cache" / "cutlass"
TILE, WARP, SHAPE = (f"cutlass::gemm::GemmShape<{sizes}>" for sizes in ("64,64,32", "32,32,32", "16,8,16"))
ALIGNED_2 = "F16,cutlass::layout::ColumnMajor,2"
PRODUCTS = {
    "multistage sm_80": f"run<cutlass::half_t,3,{TILE},{WARP},{SHAPE}>(64,128,160)",
    "TMA": "run<F16,F16,Shape<_64,_64,_64>,One,KernelTma,NoSmem,void,3>(64,128,320)",
    "warp specialized": "run<F16,F16,Shape<_64,_64,_64>,One,KernelTmaWarpSpecialized,NoSmem,void,3>(64,128,256)",
    "pingpong": "run<F16,F16,Shape<_64,_128,_64>,One,KernelTmaWarpSpecializedPingpong,Tma,PersistentScheduler,3>"
                "(192,512,256)",
    "cooperative, multicast": "run<F16,F16,Shape<_128,_128,_64>,Shape<_2,_1,_1>,KernelTmaWarpSpecializedCooperative,"
                              "TmaCooperative,PersistentScheduler,3>(256,256,256)",
    "cp.async": "run<F16,F16,Shape<_64,_64,_64>,One,KernelCpAsyncWarpSpecialized,NoSmem,void,3,"
                f"{ALIGNED_2}>(64,128,256)",
    "FP8 pingpong, multicast": "run<E4M3,E4M3,Shape<_64,_128,_128>,Shape<_1,_2,_1>,"
                               "KernelTmaWarpSpecializedPingpongFP8FastAccum,Tma,PersistentScheduler,3>(128,512,512)",
    "TF32": "run<TF32,TF32,Shape<_64,_64,_32>,One,KernelTmaWarpSpecialized,NoSmem,void,3>(64,128,160)",
    "TF32, A transposed": "run<TF32,TF32,Shape<_64,_64,_32>,One,KernelTmaWarpSpecialized,NoSmem,void,3,"
                          "F16,cutlass::layout::ColumnMajor,4,cutlass::layout::ColumnMajor>(64,128,128)",
}  # fmt: skip


def launches(folder: Path) -> Iterator[tuple[str, recorder.Launch]]:
    """The launches of all products, by their names; ``folder``: where CUTLASS lies."""
    for name, call in PRODUCTS.items():
        built = BUILT / name.replace(" ", "_").replace(",", "")
        built.mkdir(parents=True, exist_ok=True)
        old = name.endswith("sm_80")
        source = built / "product.cu"
        lines = [f"#define SM80 {int(old)}", "#define NDEBUG", f"#define RUN {call}", f'#include "{SOURCE}"', ""]
        text = "\n".join(lines)
        if not source.exists() or source.read_text() != text:
            source.write_text(text)
        include = [f"-I{folder / part}" for part in ("include", "tools/util/include")]
        arch = "sm_80" if old else "sm_90a"
        program = recorder.build(source, built / "product", arch, [*include, "--expt-relaxed-constexpr"])
        for number, launch in enumerate(recorder.launches(program, built / "launched")):
            yield name + f" {number}" * (number > 0), launch
