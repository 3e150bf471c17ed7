"""What each instruction does, in a line: for `turingas isa` and the reference. No encoding follows from it.

d is the destination, a, b and c are the sources in their order. Where the names come from: NVIDIA's "CUDA Binary
Utilities" lists the instruction set with a few words each; the rest was learned from what PTX becomes.
"""

from __future__ import annotations

import functools

_TABLE = """
FFMA        d = a * b + c in FP32, rounded once
FADD        d = a + b in FP32
FMUL        d = a * b in FP32
FSEL        d = a if the predicate holds, else b (FP32: with signs and FTZ)
FMNMX       d = the smaller of a and b if the predicate holds, else the larger (FP32)
FSET        compares FP32 numbers; d = 1.0 or all ones where it holds, else 0
FSETP       compares FP32 numbers into predicates, combined with a third one
FSWZADD     adds or subtracts a and b by a sign for each lane of a quad (derivatives)
FCHK        predicate: whether a / b needs the slow path of division
MUFU        the special function unit: reciprocal, square root, sine, logarithm, ...; an approximation
DFMA        d = a * b + c in FP64, rounded once
DADD        d = a + b in FP64
DMUL        d = a * b in FP64
DSETP       compares FP64 numbers into predicates, combined with a third one
HADD2       d = a + b, two FP16 or BF16 numbers in a register
HMUL2       d = a * b, two FP16 or BF16 numbers in a register
HFMA2       d = a * b + c, two FP16 or BF16 numbers in a register, rounded once
HMNMX2      the smaller or larger of a and b, two FP16 or BF16 numbers in a register
VHMNMX      the smallest or largest of three, two FP16 or BF16 numbers in a register
HSET2       compares two pairs of FP16 or BF16 numbers; d holds a result for each
HSETP2      compares two pairs of FP16 or BF16 numbers into predicates

MOV         d = a
SEL         d = a if the predicate holds, else b
IABS        d = |a|
BREV        d = the bits of a in reverse order
POPC        d = how many bits of a are set
FLO         d = the position of the highest bit that is set (signed: that differs from the sign)
IADD3       d = a + b + c; .X adds carries from predicates, which also receive them
IMAD        d = a * b + c; .WIDE has 64 bits of result, .HI is the upper half; IMAD.MOV and such are moves
IDP         dot product of four or two small integers, added to c
CLMAD       carry-less product of a and b, combined with c
LEA         d = (a << shift) + b, for addresses; .HI gives the upper half of a 64-bit shift
LOP3        any logical function of three registers, given as a table of 8 bits (a = 0xf0, b = 0xcc, c = 0xaa)
PLOP3       any logical function of three predicates, given as a table of 8 bits
SHF         funnel shift: the pair of registers c:a is shifted by b, d is one half of the result
SGXT        extends the sign of the low b bits of a (.U32: clears the others)
BMSK        d = a mask of b bits that begins at bit a
PRMT        d = four bytes picked out of the eight of a and c; b says which
ISETP       compares integers into predicates, combined with a third one; .EX for 64 bits in two steps
IMNMX       d = the smaller of a and b if the predicate holds, else the larger (integers)
VIMNMX      the smaller or larger of a and b, integers
VIMNMX3     the smallest or largest of three integers
VIADDMNMX   a + b, then the smaller or larger of that and c
VIADD       d = a + b, integers
VABSDIFF    d = |a - b| + c
VABSDIFF4   the same for four bytes in a register

F2F         from one floating-point format to another
FRND        rounds to an integer, in floating point
F2I         from floating point to integer
I2F         from integer to floating point
I2FP        from integer to FP32, at the rate of arithmetic
F2FP        two FP32 numbers, rounded and packed in one register (FP16, BF16, TF32, FP8)
F2IP        FP32 numbers to bytes, packed
I2I         from one integer format to another, with saturation
I2IP        packs integers to smaller ones, with saturation

LDG         loads from global memory
LD          loads from a generic address
LDS         loads from shared memory
LDL         loads from local memory
LDC         loads from constant memory, at an address in a register
STG         stores to global memory
ST          stores to a generic address
STS         stores to shared memory
STL         stores to local memory
LDGSTS      copies from global to shared memory, past the registers (cp.async)
LDGDEPBAR   groups the LDGSTS before it, so that DEPBAR can wait for them
ATOM        atomic operation at a generic address, returns the old value
ATOMG       atomic operation on global memory, returns the old value
ATOMS       atomic operation on shared memory, returns the old value
RED         atomic operation on global memory that returns nothing
REDG        atomic operation on global memory that returns nothing
LDGMC       loads and reduces over a multicast address (multimem.ld_reduce)
CCTL        cache control: invalidates or prefetches lines
CCTLL       cache control of local memory
CCTLT       cache control of textures
MEMBAR      memory fence: earlier accesses are seen before later ones
ERRBAR      waits until errors of earlier accesses are known
QSPC        asks which memory a generic address lies in

BRA         branches; a predicate or a uniform register may make it conditional besides the guard
BRX         branches to an address in a register, relative
BRXU        branches to an address in a uniform register, relative
JMP         jumps to an absolute address
JMX         jumps to an absolute address in a register
JMXU        jumps to an absolute address in a uniform register
CALL        calls a function; the return address lies in registers that the code set itself
RET         returns to an address in registers
WARPSYNC    waits until the lanes of a mask have come together
LEPC        d = the address of this instruction
EXIT        ends the thread
KILL        ends the thread of a pixel
RTT         returns from a trap
BPT         breakpoint or trap
BSSY        sets up a barrier register: its lanes meet at the target
BSYNC       waits for the lanes of a barrier register to meet
BREAK       takes lanes out of a barrier register
YIELD       lets other lanes of the warp go on
ENDCOLLECTIVE  ends a collective region
BMOV        moves between barrier registers, convergence state and registers
RPCMOV      moves the return address
BAR         waits or arrives at a named barrier of the block (__syncthreads)
B2R         reads a barrier or its result
R2B         writes a barrier
CGAERRBAR   waits until errors of the cluster are known
PREEXIT     lets dependent grids start (griddepcontrol.launch_dependents)
ACQBULK     waits for the grids that this one depends on (griddepcontrol.wait)
DEPBAR      waits until a scoreboard has at most so many accesses left
NANOSLEEP   sleeps for about so many nanoseconds
NOP         does nothing
PMTRIG      triggers a performance monitor
VOTE        asks the warp: all, any, equal; or the mask of lanes whose predicate holds
MATCH       the lanes that hold the same value
SHFL        reads a register of another lane
REDUX       reduces an integer over the warp
ELECT       picks one lane of the warp
WARPGROUP   arrives at, or waits for, matrix products of the warp group
WARPGROUPSET   sets the state of a warp group
S2R         reads a special register, such as the thread's number
CS2R        reads a special register with fixed latency; SRZ is 0
S2UR        reads a special register into a uniform register
P2R         packs predicates into a register
R2P         unpacks a register into predicates
R2UR        moves a register to a uniform register
SETCTAID    sets the number of the block
GETLMEMBASE reads the base address of local memory
SETLMEMBASE sets the base address of local memory

UMOV        uniform d = a
USEL        uniform SEL
UIADD3      uniform IADD3
UIMAD       uniform IMAD
ULEA        uniform LEA
UCLEA       address arithmetic for constants, uniform
ULOP3       uniform LOP3
USHF        uniform SHF
UPRMT       uniform PRMT
USGXT       uniform SGXT
UBMSK       uniform BMSK
UFLO        uniform FLO
UBREV       uniform BREV
UPOPC       uniform POPC
UF2FP       uniform F2FP
UISETP      uniform ISETP
UPLOP3      uniform PLOP3
UP2UR       uniform P2R
UR2UP       uniform R2P
VOTEU       VOTE with a uniform result
ULDC        loads a uniform register from constant memory
USETMAXREG  gives up or asks for registers (setmaxnreg)
USETSHMSZ   sets the size of shared memory
UCGABAR_ARV arrives at the barrier of the cluster
UCGABAR_WAIT   waits at the barrier of the cluster
ULEPC       uniform d = the address of this instruction

SYNCS       mbarriers in shared memory: init, arrive, test, wait
ARRIVES     arrives at an mbarrier when earlier LDGSTS have landed
FENCE       orders generic accesses and asynchronous ones (fence.proxy.async)
STAS        stores to the shared memory of another block of the cluster, and arrives at its mbarrier
REDAS       reduces in the shared memory of another block of the cluster, and arrives at its mbarrier
UBLKCP      bulk copy between global and shared memory (cp.async.bulk)
UBLKRED     bulk reduction (cp.reduce.async.bulk)
UBLKPF      bulk prefetch to L2 (cp.async.bulk.prefetch)
UTMALDG     loads a tile through a tensor map (cp.async.bulk.tensor)
UTMASTG     stores a tile through a tensor map
UTMAREDG    reduces a tile through a tensor map
UTMAPF      prefetches a tile through a tensor map
UTMACCTL    cache control of tensor maps
UTMACMDFLUSH   commits the bulk copies before it

HMMA        matrix product of a warp, FP16, BF16 or TF32, with FP16 or FP32 sums
IMMA        matrix product of a warp, small integers
BMMA        matrix product of a warp, bits
DMMA        matrix product of a warp, FP64
QMMA        matrix product of a warp, FP8
HGMMA       matrix product of a warp group, FP16, BF16 or TF32 (wgmma)
IGMMA       matrix product of a warp group, integers (wgmma)
BGMMA       matrix product of a warp group, bits (wgmma)
QGMMA       matrix product of a warp group, FP8 (wgmma)
LDSM        loads 8x8 matrices from shared memory, spread over the warp (ldmatrix)
STSM        stores 8x8 matrices to shared memory (stmatrix)
MOVM        transposes an 8x8 matrix that is spread over the warp

TEX         reads a texture, filtered
TLD4        reads one component of the four texels around a place
TLD         reads a texel, unfiltered
TMML        the mipmap level that TEX would take
TXD         reads a texture with given derivatives
TXQ         asks for properties of a texture
FOOTPRINT   which texels a texture access would touch
SULD        loads from a surface
SUST        stores to a surface
SURED       atomic operation on a surface that returns nothing
SUATOM      atomic operation on a surface
SUQUERY     asks for properties of a surface
PIXLD       reads the state of a pixel
"""


@functools.cache
def _meanings() -> dict[str, str]:
    return dict(line.split(None, 1) for line in _TABLE.splitlines() if line)


def meaning(base: str) -> str:
    """What the instruction does; "" where this table does not say."""
    return _meanings().get(base, "")
