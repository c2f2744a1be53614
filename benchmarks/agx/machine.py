"""Runs machine code of Apple's G13 GPU (M1) with NumPy, many SIMD groups in step, and counts instructions.

The effect of an instruction follows the documentation of dougallj/applegpu. Its cost follows Mesa's model of
the units (``src/asahi/compiler/agx_performance.c``) and, for 64-bit arithmetic, the measurements of
philipturner/metal-benchmarks. Every memory access is checked for bounds and alignment. As on the hardware,
32-bit subnormal numbers are flushed to zero and 16-bit ones are not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

LANES = 32
Thread = tuple[int, int, int]
Numbers = Any  # an array with a number for each lane, or one number for all lanes

_U64 = np.uint64
# The unit of each operation (F, or IC for integers and conversions) and its cycles on this unit.
_COSTS = {
    **dict.fromkeys(["ffma", "fadd", "fmul", "hfma", "hadd", "hmul", "mov_imm", "bitop"], ("F", 1)),
    **dict.fromkeys(["icmpsel", "fcmpsel", "iadd"], ("F", 1)),
    **dict.fromkeys(
        ["get_sr", "get_sr_coverage", "get_sr_barrier", "shuffle", "icmp_ballot"], ("F", 2)
    ),
    **{"simd_prefix": ("F", 18), "simd_reduce": ("F", 24)},
    **dict.fromkeys(["imad", "bfi", "bfeil", "extr", "asr", "floor", "log2", "exp2"], ("IC", 2)),
    **{"rcp": ("IC", 3), "rsqrt": ("IC", 4)},
    # Not part of that model. They are assumed to cost as much as conversions.
    **dict.fromkeys(["convert", "ffs", "popcount", "bitrev", "intl"], ("IC", 2)),
}
_CONTROL = frozenset(
    (
        *("if_icmp", "if_fcmp", "else_icmp", "else_fcmp", "while_icmp", "while_fcmp", "pop_exec"),
        *("jmp_exec_none", "jmp_exec_any", "jmp_exec_none_after", "stop", "begin_cf"),
    )
)
_BYTES = {0: 1, 1: 2, 2: 4}  # bytes per element for each format of a memory instruction
_MOST_STEPS = 2_000_000


class Operand(NamedTuple):
    """An operand: a register (r), a uniform register (u), an immediate number (i) or nothing (_)."""

    kind: str
    value: int
    bits: int
    absolute: bool = False  # for an integer: no sign extension
    negated: bool = False

    def part(self, number: int) -> Operand:
        """The operand ``number`` positions after this one."""
        return self._replace(value=self.value + number * self.bits // 16)


class Instruction(NamedTuple):
    """One machine instruction, as ``agx_offline`` prints it."""

    op: str
    destinations: tuple[Operand, ...]
    sources: tuple[Operand, ...]
    imm: int
    target: int
    cond: int
    size: int  # bytes of an element in memory
    nest: int
    inverted: bool
    shift: int
    mask: int


class Kernel:
    """The machine code of one kernel: offsets of its arguments, its parts and its table of constants."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.arguments: list[int] = []  # byte offsets of 64-bit addresses in the uniform registers
        self.constants: list[int] = []  # number of the first uniform register, then 16-bit words
        self.parts: dict[str, dict[int, list[Instruction]]] = {}


def _operand(text: str) -> Operand:
    kind, value, bits, _, absolute, negated, _ = text.split("/")
    return Operand(kind, int(value), int(bits), absolute == "1", negated == "1")


def _instruction(line: str) -> Instruction:
    op, destinations, sources, rest = line.split("|")
    number = {key: int(value) for key, value in (field.split("=") for field in rest.split())}
    return Instruction(
        op=op,
        destinations=tuple(map(_operand, destinations.split())),
        sources=tuple(map(_operand, sources.split())),
        imm=number["imm"],
        target=number["target"],
        cond=number["cond"],
        size=4 if op == "atomic" else _BYTES.get(number["fmt"], 0),
        nest=number["nest"],
        inverted=bool(number["inv"]),
        shift=number["shift"],
        mask=number["mask"],
    )


def parse(dump: str) -> dict[str, Kernel]:
    """The kernels in the output of ``agx_offline``, by name."""
    kernels: dict[str, Kernel] = {}
    for line in dump.splitlines():
        word, _, rest = line.partition(" ")
        if word == "KERNEL":
            kernel = kernels[rest.split()[0]] = Kernel(rest.split()[0])
        elif word == "ARG":
            _, bits, _, offset = rest.split()
            assert bits == "64", "every argument is an address"
            kernel.arguments.append(int(offset))
        elif word == "CODE":
            blocks = kernel.parts[rest] = {}
        elif word == "RODATA":
            kernel.constants = list(map(int, rest.split()))
        elif word == "BLOCK":
            block = blocks.setdefault(int(rest), [])
        elif word == "I":
            block.append(_instruction(rest))
    return kernels


def statistics(said: str) -> list[dict[str, int]]:
    """Mesa's statistics of each kernel, in order: instructions, bytes, registers, threads, spills, ..."""
    found = []
    for line in said.splitlines():
        if "SHADER-DB" in line:
            spills, fills = map(int, re.search(r"(\d+):(\d+) spills:fills", line).groups())
            numbers = re.findall(r"(\d+) ([a-z]+)", line.replace("0:0 spills:fills", ""))
            found.append({key: int(n) for n, key in numbers} | {"spills": spills, "fills": fills})
    return found


def _small_float(code: int) -> np.float32:
    """The floating-point number that 8 bits of an instruction encode."""
    sign, exponent, mantissa = -1.0 if code & 0x80 else 1.0, code >> 4 & 7, code & 0xF
    if exponent:
        return np.float32(sign * (mantissa | 0x10) * 2.0 ** (exponent - 7))
    return np.float32(sign * mantissa * 2.0**-6)


def _flushed(number: Numbers) -> Numbers:
    """32-bit floats with subnormal numbers replaced by zeros of the same sign."""
    tiny = np.abs(number) < np.float32(2.0**-126)
    return np.where(tiny, np.copysign(np.float32(0), number), number)


def _signed(number: Numbers, bits: int) -> Numbers:
    shift = 64 - bits
    return (number << _U64(shift)).view(np.int64) >> np.int64(shift)


class Machine:
    """The state of a launch: code, memory and the registers of the SIMD groups that run."""

    def __init__(
        self, kernel: Kernel, buffers: Sequence[np.ndarray], offsets: Sequence[int] | None = None
    ) -> None:
        """``buffers``: arrays of bytes, one for each argument.

        ``offsets``: distance in bytes of each buffer from a fully aligned address.
        """
        self.kernel = kernel
        self.memory = buffers
        self.offsets = offsets or [0] * len(buffers)
        self.uniforms = np.zeros(512, np.uint16)
        for number, (at, offset) in enumerate(zip(kernel.arguments, self.offsets, strict=True)):
            address = np.array([((number + 1) << 40) + offset], _U64)
            self.uniforms[at // 2 : at // 2 + 4] = address.view(np.uint16)
        if kernel.constants:
            base, *words = kernel.constants
            self.uniforms[base : base + len(words)] = words
        self.counts: Counter[str] = Counter()
        if "preamble" in kernel.parts:  # one thread that computes uniform registers
            self._execute("preamble", [[(0, 0, 0)]])
        self.preamble = self.counts["issued"]
        self.counts = Counter()

    def run(self, groups: Sequence[Sequence[Thread]], at_once: int = 128) -> None:
        """Runs SIMD groups of up to 32 threads and adds their instructions to ``counts``."""
        for first in range(0, len(groups), at_once):
            self._execute("main", groups[first : first + at_once])

    # ---- the loop

    def _execute(self, part: str, groups: Sequence[Sequence[Thread]]) -> None:
        code: list[Instruction] = []
        self.block_at, self.block_end = {}, {}
        for number, block in self.kernel.parts[part].items():
            self.block_at[number] = len(code)
            code += block
            self.block_end[number] = len(code) - 1
        self.groups, self.lanes = len(groups), len(groups) * LANES
        self.position = np.zeros((3, self.lanes), _U64)
        self.running = np.zeros(self.lanes, bool)
        for number, threads in enumerate(groups):
            at = slice(number * LANES, number * LANES + len(threads))
            self.position[:, at] = np.array(threads, _U64).T
            self.running[at] = True
        self.executing = self.running.copy()
        self.r32 = np.zeros((self.lanes, 128), np.uint32)
        self.r16 = self.r32.view(np.uint16)
        self.stack = np.zeros((self.lanes, 4096), np.uint8)
        # Each group has a program counter. The groups with the lowest one execute the next instruction.
        self.counter = np.zeros(self.groups, np.int64)
        end = len(code)
        with np.errstate(all="ignore"):
            for _ in range(_MOST_STEPS):
                now = int(self.counter.min())
                if now == end:
                    return
                self.here = self.counter == now
                self.lanes_here = np.repeat(self.here, LANES)
                self.mask = self.executing & self.lanes_here
                self.counter[self.here] += 1
                instruction = code[now]
                self._count(instruction, int(self.here.sum()))
                if instruction.op == "stop":
                    self.counter[self.here] = end
                elif instruction.op in _CONTROL:
                    self._control(instruction)
                else:
                    step = _STEPS.get(instruction.op)
                    if step is None:
                        raise NotImplementedError(instruction.op)
                    step(self, instruction)
        raise AssertionError(f"{self.kernel.name}: more than {_MOST_STEPS} steps")

    def _count(self, i: Instruction, groups: int) -> None:
        counts = self.counts
        unit, cycles = _COSTS.get(i.op, ("", 1))
        wide = bool(i.destinations) and i.destinations[0].bits == 64
        counts["issued"] += groups
        counts["control"] += groups * (i.op in _CONTROL)
        counts["64-bit additions"] += groups * (wide and i.op == "iadd")
        counts["64-bit multiplications"] += groups * (wide and i.op == "imad")
        if unit == "IC":
            counts["slots"] += groups
            counts["integer cycles"] += groups * (8 if wide and i.op == "imad" else 2 * cycles)
        elif wide and i.op == "iadd":
            counts["slots"] += groups * 4
        else:
            counts["slots"] += groups * cycles
        if i.op in ("device_load", "device_store"):
            width = f"{i.size}x{i.mask.bit_count()}"
            counts[f"{i.op[7:]} {width}"] += groups
        if i.op in ("atomic", "stack_load", "stack_store"):
            counts[i.op] += groups

    def _control(self, i: Instruction) -> None:
        if i.op.startswith("jmp"):
            active = self.executing.reshape(self.groups, LANES).any(1)
            taken = self.here & (active if i.op == "jmp_exec_any" else ~active)
            after = i.op == "jmp_exec_none_after"  # jumps to the last instruction of that block
            self.counter[taken] = (self.block_end if after else self.block_at)[i.target]
            return
        if i.op == "begin_cf":
            return
        nesting = self.r16[:, 0].astype(np.int64)
        if i.op == "pop_exec":
            new = np.maximum(nesting - i.nest, 0)
        else:
            holds = self._integers_hold(i) if i.op.endswith("icmp") else self._floats_hold(i)
            new = np.where(holds, 0, 1)
            if i.op.startswith("if"):
                new = np.where(nesting != 0, nesting + i.nest, new)
            elif i.op.startswith("else"):
                new = np.where(nesting == 0, i.nest, np.where(nesting == 1, new, nesting))
            else:
                new = np.where(nesting < i.nest, np.where(holds, 0, i.nest), nesting)
        self.r16[self.lanes_here, 0] = new[self.lanes_here]
        self.executing = np.where(self.lanes_here, (new == 0) & self.running, self.executing)

    # ---- operands

    def _bits(self, o: Operand) -> Numbers:
        """The bits of an operand without sign extension."""
        if o.kind == "i":
            return _U64(o.value)
        if o.kind == "u":
            words = self.uniforms[o.value : o.value + o.bits // 16].astype(_U64)
            return sum((word << _U64(16 * n) for n, word in enumerate(words)), _U64(0))
        if o.kind == "r":
            if o.bits == 16:
                return self.r16[:, o.value].astype(_U64)
            assert o.value % 2 == 0
            low = self.r32[:, o.value // 2].astype(_U64)
            if o.bits == 32:
                return low
            return low | self.r32[:, o.value // 2 + 1].astype(_U64) << _U64(32)
        assert o.kind in ("undef", "_"), o.kind
        return _U64(0)

    def _integer(self, o: Operand) -> Numbers:
        """An operand of an addition or multiplication, with sign extension and negation applied."""
        number = self._bits(o)
        if o.kind != "i" and not o.absolute and o.bits < 64:
            number = _signed(number, o.bits).view(_U64)
        return _U64(0) - number if o.negated else number

    def _float(self, o: Operand) -> Numbers:
        if o.kind == "i":
            number = _small_float(o.value)
        elif o.bits == 16:
            number = self._bits(o).astype(np.uint16).view(np.float16).astype(np.float32)
        else:
            number = _flushed(self._bits(o).astype(np.uint32).view(np.float32))
        number = np.abs(number) if o.absolute else number
        return -number if o.negated else number

    def _set(self, o: Operand, number: Numbers) -> None:
        """Writes an operand in the executing lanes."""
        if o.kind == "_":
            return
        assert o.kind == "r", o.kind
        number = np.broadcast_to(number, self.lanes)[self.mask]
        if o.bits == 16:
            self.r16[self.mask, o.value] = number.astype(np.uint16)
            return
        assert o.value % 2 == 0
        self.r32[self.mask, o.value // 2] = number.astype(np.uint32)
        if o.bits == 64:
            self.r32[self.mask, o.value // 2 + 1] = (number >> _U64(32)).astype(np.uint32)

    def _set_float(self, o: Operand, number: Numbers) -> None:
        number = np.asarray(number, np.float32)
        if o.bits == 16:
            self._set(o, number.astype(np.float16).view(np.uint16).astype(_U64))
        else:
            self._set(o, _flushed(number).view(np.uint32).astype(_U64))

    def _integers_hold(self, i: Instruction) -> Numbers:
        a, b = (self._bits(o) for o in i.sources[:2])
        if i.cond >= 4:  # signed comparison; immediate numbers are small and positive
            a, b = (
                x.view(np.int64) if o.kind == "i" else _signed(x, o.bits)
                for x, o in zip((a, b), i.sources)
            )
        holds = (a == b, a < b, a > b)[i.cond & 3]
        return ~holds if i.inverted else holds

    def _floats_hold(self, i: Instruction) -> Numbers:
        a, b = (self._float(o) for o in i.sources[:2])
        holds = {
            0: a == b,
            1: a < b,
            2: a > b,
            3: (a < b) | np.isnan(b),
            5: a >= b,
            6: a <= b,
            7: (a > b) | np.isnan(b),
        }[i.cond]
        return ~holds if i.inverted else holds

    # ---- memory

    def _place(self, address: np.ndarray, size: int, what: str) -> tuple[np.ndarray, np.ndarray]:
        """The buffer and the offset of each executing lane's address."""
        buffer = (address >> _U64(40)).astype(np.int64) - 1
        at = (address & _U64((1 << 40) - 1)).astype(np.int64)
        assert ((buffer >= 0) & (buffer < len(self.memory))).all(), (
            f"{what}: an address in no buffer"
        )
        assert (at % size == 0).all(), f"{what}: {size} bytes at an address that is not aligned"
        at -= np.array(self.offsets)[buffer]
        ends = np.array([len(m) for m in self.memory])[buffer]
        outside = (at < 0) | (at + size > ends)
        if outside.any():
            worst = int(np.argmax(outside))
            raise AssertionError(
                f"{what}: out of bounds: buffer {buffer[worst]}, byte {at[worst]} of {ends[worst]}"
            )
        return buffer, at

    def _move(self, i: Instruction, base: Operand, index: Operand, data: Operand) -> None:
        """Loads or stores one to four elements per lane."""
        store = i.op == "device_store"
        what = f"{self.kernel.name}: {'store' if store else 'load'}"
        if index.kind == "i":
            step = _U64(np.int64(np.int16(np.uint16(index.value & 0xFFFF))).view(_U64))
        else:
            step = self._bits(index) if index.absolute else self._integer(index)
        shift = i.shift + {1: 0, 2: 1, 4: 2}[i.size]
        start = np.broadcast_to(self._bits(base) + (step << _U64(shift)), self.lanes)[self.mask]
        elements = [c for c in range(4) if i.mask >> c & 1]
        for number, element in enumerate(elements):
            if not self.mask.any():
                return
            part = data.part(number)
            buffer, at = self._place(start + _U64(element * i.size), i.size, what)
            moved = np.zeros(self.lanes, _U64)
            lanes = np.nonzero(self.mask)[0]
            if store:
                moved[:] = self._bits(part)
            for one in np.unique(buffer):
                mine = buffer == one
                memory = self.memory[one]
                for byte in range(i.size):
                    where, shift_of = at[mine] + byte, _U64(8 * byte)
                    if store:
                        memory[where] = (moved[lanes[mine]] >> shift_of & _U64(0xFF)).astype(
                            np.uint8
                        )
                    else:
                        moved[lanes[mine]] |= memory[where].astype(_U64) << shift_of
            if not store:
                self._set(part, moved)

    # ---- instructions

    def _get_sr(self, i: Instruction) -> None:
        if not 80 <= i.imm <= 82:  # thread position in the grid
            raise NotImplementedError(f"special register {i.imm}")
        self._set(i.destinations[0], self.position[i.imm - 80])

    def _mov_imm(self, i: Instruction) -> None:
        self._set(i.destinations[0], _U64(i.imm))

    def _bitop(self, i: Instruction) -> None:
        a, b = (self._bits(o) for o in i.sources)
        if i.imm in (0b1100, 0b0011):
            result = a
        else:
            terms = (~a & ~b, a & ~b, ~a & b, a & b)
            result = _U64(0)
            for n, term in enumerate(terms):
                result = result | term if i.imm >> n & 1 else result
        self._set(i.destinations[0], result)

    def _iadd(self, i: Instruction) -> None:
        a, b = (self._integer(o) for o in i.sources)
        self._set(i.destinations[0], a + (b << _U64(i.shift)))

    def _imad(self, i: Instruction) -> None:
        a, b, c = (self._integer(o) for o in i.sources)
        self._set(i.destinations[0], a * b + (c << _U64(i.shift)))

    def _bit_field(self, i: Instruction) -> None:
        a, b, c = (self._bits(o) for o in i.sources)
        shift, mask = c & _U64(0x7F), _U64((1 << i.imm) - 1 if i.imm else 0xFFFFFFFF)
        far = shift >= _U64(64)
        shift = np.where(far, _U64(0), shift)
        zero = _U64(0)
        if i.op == "bfi":
            moved = np.where(far, zero, (b & mask) << shift)
            result = (a & ~np.where(far, zero, mask << shift)) | moved
        elif i.op == "bfeil":
            result = (a & ~mask) | (np.where(far, zero, b >> shift) & mask)
        else:
            result = np.where(far, zero, ((b << _U64(32)) | a) >> shift) & mask
        self._set(i.destinations[0], result)

    def _asr(self, i: Instruction) -> None:
        number, shift = (self._bits(o) for o in i.sources)
        shift = np.minimum(shift & _U64(0x7F), _U64(63)).view(np.int64)
        self._set(i.destinations[0], (_signed(number, i.sources[0].bits) >> shift).view(_U64))

    def _select(self, i: Instruction) -> None:
        holds = self._integers_hold(i) if i.op == "icmpsel" else self._floats_hold(i)
        a, b = (self._bits(o) for o in i.sources[2:])
        self._set(i.destinations[0], np.where(holds, a, b))

    def _ffma(self, i: Instruction) -> None:
        # Rounded twice. This is exact enough for its only use here, the refinement of a reciprocal.
        a, b, c = (np.asarray(self._float(o), np.float64) for o in i.sources)
        self._set_float(i.destinations[0], a * b + c)

    def _float_arithmetic(self, i: Instruction) -> None:
        a, b = (self._float(o) for o in i.sources)
        self._set_float(i.destinations[0], a + b if i.op.endswith("add") else a * b)

    def _rcp(self, i: Instruction) -> None:
        self._set_float(i.destinations[0], np.float32(1) / self._float(i.sources[0]))

    def _convert(self, i: Instruction) -> None:
        mode, source = i.sources[0].value, i.sources[1]
        if mode in (10, 6, 0):
            self._set_float(i.destinations[0], self._bits(source).astype(np.float32))
        elif mode in (11, 7, 1):
            number = _signed(self._bits(source), source.bits)
            self._set_float(i.destinations[0], number.astype(np.float32))
        elif mode in (8, 4, 9, 5):
            low, high = (0, 2.0**32 - 1) if mode in (8, 4) else (-(2.0**31), 2.0**31 - 1)
            number = np.trunc(np.asarray(self._float(source), np.float64))
            number = np.clip(np.nan_to_num(number), low, high)
            self._set(i.destinations[0], number.astype(np.int64).view(_U64))
        else:
            raise NotImplementedError(f"convert {mode}")

    def _ffs(self, i: Instruction) -> None:
        number = np.broadcast_to(self._bits(i.sources[0]), self.lanes)
        top = np.array([int(n).bit_length() - 1 for n in number], np.int64)
        self._set(i.destinations[0], top.view(_U64))

    def _device_load(self, i: Instruction) -> None:
        self._move(i, i.sources[0], i.sources[1], i.destinations[0])

    def _device_store(self, i: Instruction) -> None:
        self._move(i, i.sources[1], i.sources[2], i.sources[0])

    def _atomic(self, i: Instruction) -> None:
        change = _ATOMICS.get(i.imm)
        if change is None:
            raise NotImplementedError(f"atomic {i.imm}")
        address = self._bits(i.sources[1]) + (self._integer(i.sources[2]) << _U64(2))
        address = np.broadcast_to(address, self.lanes)[self.mask]
        given = np.broadcast_to(self._bits(i.sources[0]), self.lanes)[self.mask]
        before = np.zeros(self.lanes, _U64)
        places = zip(*self._place(address, 4, f"{self.kernel.name}: atomic"))
        for lane, (buffer, at), number in zip(np.nonzero(self.mask)[0], places, given):
            word = self.memory[buffer][at : at + 4]
            old = int.from_bytes(word.tobytes(), "little")
            new = change(old, int(number) & 0xFFFFFFFF) & 0xFFFFFFFF
            word[:] = np.frombuffer(new.to_bytes(4, "little"), np.uint8)
            before[lane] = old
        if i.destinations:
            self._set(i.destinations[0], before)

    def _uniform_store(self, i: Instruction) -> None:
        source, at = i.sources[0], i.sources[1].value
        words = source.bits // 16
        for number in range(i.mask.bit_count()):
            bits = int(np.broadcast_to(self._bits(source.part(number)), self.lanes)[0])
            for word in range(words):
                self.uniforms[at + number * words + word] = bits >> 16 * word & 0xFFFF

    def _stack(self, i: Instruction) -> None:
        load = i.op == "stack_load"
        data, offset = (i.destinations[0], i.sources[0]) if load else i.sources[:2]
        start = np.broadcast_to(self._bits(offset), self.lanes).astype(np.int64)
        lanes = np.arange(self.lanes)
        for number in range(i.mask.bit_count()):
            part, moved = data.part(number), np.zeros(self.lanes, _U64)
            if not load:
                moved[:] = self._bits(part)
            for byte in range(i.size):
                at = start + number * i.size + byte
                if load:
                    moved |= self.stack[lanes, at].astype(_U64) << _U64(8 * byte)
                else:
                    byte_of = (moved >> _U64(8 * byte) & _U64(0xFF)).astype(np.uint8)
                    self.stack[lanes[self.mask], at[self.mask]] = byte_of[self.mask]
            if load:
                self._set(part, moved)

    def _nothing(self, i: Instruction) -> None:
        """Does nothing: waits for memory and changes of the stack pointer have no effect here."""


def _as_signed(number: int) -> int:
    return number - (number >> 31 << 32)


# The new word of each atomic operation on 32 bits, by the number of the operation in the instruction.
_ATOMICS: dict[int, Callable[[int, int], int]] = {
    0: lambda old, given: old + given,
    1: lambda old, given: old - given,
    2: lambda old, given: given,
    4: min,
    5: lambda old, given: min(old, given, key=_as_signed),
    6: max,
    7: lambda old, given: max(old, given, key=_as_signed),
    8: lambda old, given: old & given,
    9: lambda old, given: old | given,
    10: lambda old, given: old ^ given,
}

_STEPS: dict[str, Callable[[Machine, Instruction], None]] = {
    "get_sr": Machine._get_sr,
    "mov_imm": Machine._mov_imm,
    "bitop": Machine._bitop,
    "iadd": Machine._iadd,
    "imad": Machine._imad,
    **dict.fromkeys(("bfi", "bfeil", "extr"), Machine._bit_field),
    "asr": Machine._asr,
    **dict.fromkeys(("icmpsel", "fcmpsel"), Machine._select),
    "ffma": Machine._ffma,
    **dict.fromkeys(("fadd", "fmul", "hadd", "hmul"), Machine._float_arithmetic),
    "rcp": Machine._rcp,
    "convert": Machine._convert,
    "ffs": Machine._ffs,
    "device_load": Machine._device_load,
    "device_store": Machine._device_store,
    "atomic": Machine._atomic,
    "uniform_store": Machine._uniform_store,
    **dict.fromkeys(("stack_load", "stack_store"), Machine._stack),
    **dict.fromkeys(("wait", "stack_adjust"), Machine._nothing),
}
