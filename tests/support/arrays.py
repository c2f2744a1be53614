"""Generated calls: planes (P, *spatial), the arrays callers pass for them, expected results."""

import random
from dataclasses import dataclass, replace

import mlx.core as mx
import numpy as np

import mlx_unpool
from support import reference

FLOATS = (mx.float32, mx.float16, mx.bfloat16)
# The smallest positive number of each dtype. Multiples of it below 128 are subnormal as well.
SMALLEST = {mx.float32: 2.0**-149, mx.float16: 2.0**-24, mx.bfloat16: 2.0**-133}
INTEGERS = (*(mx.int8, mx.int16, mx.int32, mx.int64), *(mx.uint8, mx.uint16, mx.uint32, mx.uint64))


def to_numpy(x: mx.array) -> np.ndarray:
    """An MLX array as a NumPy one; bfloat16 becomes float32, which holds it exactly."""
    return np.array(x.astype(mx.float32) if x.dtype == mx.bfloat16 else x)


def copies_bits(stream: mx.Stream | mx.DeviceType | None = None, has_indices: bool = True) -> bool:
    """Whether pools copy every bit of a value, so that tests can compare bits instead of numbers.

    On a CPU they may choose another zero or NaN if they return no indices. The CPU of a Mac always
    does: ``mx.maximum`` returns the second of two NaNs, and 0 for -0 and 0.
    """
    device = mx.default_device() if stream is None else getattr(stream, "device", stream)
    if getattr(device, "type", device) == mx.gpu:
        return True
    if not has_indices:
        return False
    with mx.stream(mx.cpu):
        zeros = mx.zeros(64)
        return (1 / mx.maximum(zeros, -zeros) < 0).all().item()


@dataclass(frozen=True)
class Layout:
    """One way to pass planes (P, *spatial) to the library."""

    rank: int
    batch: int | None  # None: no batch axis
    channels: int
    data_format: str

    @property
    def planes(self) -> int:
        return (self.batch or 1) * self.channels

    def arrange(self, planes: np.ndarray, dtype: mx.Dtype) -> mx.array:
        """Planes (P, *spatial) as the caller's array."""
        x = planes.reshape(self.batch or 1, self.channels, *planes.shape[1:])
        if self.data_format == "channels_last":
            x = np.moveaxis(x, 1, -1)
        x = np.ascontiguousarray(x if self.batch else x[0])
        return mx.array(x, dtype) if dtype == mx.float64 else mx.array(x).astype(dtype)

    def planes_of(self, x: mx.array) -> np.ndarray:
        """The caller's array as planes (P, *spatial)."""
        array = to_numpy(x if self.batch else x[None])
        if self.data_format == "channels_last":
            array = np.moveaxis(array, -1, 1)
        return array.reshape(self.planes, *array.shape[2:])


@dataclass(frozen=True)
class Generated:
    """A generated call."""

    layout: Layout
    size: tuple[int, ...]
    dtype: mx.Dtype
    planes: np.ndarray

    @property
    def data_format(self) -> dict[str, str]:
        return {"data_format": self.layout.data_format}

    @property
    def x(self) -> mx.array:
        """The input in the layout of the call."""
        return self.layout.arrange(self.planes, self.dtype)

    def function(self, name: str):
        """A function of the library for the rank of this call."""
        return getattr(mlx_unpool, f"{name}{self.layout.rank}d")

    def unpool_anywhere(self, values: mx.array, indices: mx.array) -> mx.array:
        """Unpooling of flat indices of any origin."""
        unpool = self.function("max_unpool")
        return unpool(values, indices, None, output_size=self.size, **self.data_format)


@dataclass(frozen=True)
class Case(Generated):
    """A call of a pool with equal windows."""

    pool: reference.Pool
    same: bool = False  # whether the padding of ``pool`` is passed as "same"

    @property
    def parameters(self) -> tuple:
        return self.pool.kernel, self.pool.stride, "same" if self.same else self.pool.padding

    @property
    def cells(self) -> tuple[int, ...]:
        return reference.pooled_size(self.pool, self.size)

    def max_pool(self, x: mx.array, index_format: str = "flat", return_indices: bool = True):
        options = {
            "return_indices": return_indices,
            "index_format": index_format,
            **self.data_format,
        }
        options |= {"dilation": self.pool.dilation, "ceil_mode": self.pool.ceil_mode}
        return self.function("max_pool")(x, *self.parameters, **options)

    def max_unpool(
        self, values: mx.array, indices: mx.array, index_format: str | None = None
    ) -> mx.array:
        options = {
            "output_size": self.size,
            "dilation": self.pool.dilation,
            "index_format": index_format,
        }
        return self.function("max_unpool")(
            values, indices, *self.parameters, **options, **self.data_format
        )

    def expected(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values, flat and window indices of the reference."""
        return reference.max_pool(self.planes, self.pool)


@dataclass(frozen=True)
class IrregularCase(Generated):
    """A call of adaptive pooling or, with a kernel, of fractional pooling."""

    cells: tuple[int, ...]
    kernel: tuple[int, ...] | None
    samples: np.ndarray  # (planes, rank)

    def max_pool(self, x: mx.array, return_indices: bool = True):
        options = {"return_indices": return_indices, **self.data_format}
        if self.kernel is None:
            return self.function("adaptive_max_pool")(x, self.cells, **options)
        samples = mx.array(self.samples.reshape(self.layout.batch or 1, -1, self.layout.rank))
        options |= {"output_size": self.cells, "random_samples": samples}
        return self.function("fractional_max_pool")(x, self.kernel, **options)

    max_unpool = Generated.unpool_anywhere

    def expected(self) -> tuple[np.ndarray, np.ndarray]:
        """Values and flat indices of the reference."""
        if self.kernel is None:
            bounds = [reference.adaptive_bounds(self.size, self.cells)]
        else:
            given = self.size, self.cells, self.kernel
            bounds = [reference.fractional_bounds(*given, u) for u in self.samples]
        return reference.max_pool_between(self.planes, bounds)


def drawn_layout(rank: int, choose: random.Random) -> Layout:
    data_formats = "channels_last", "channels_first"
    batch, channels = choose.choice((None, 1, 2)), choose.choice((1, 2, 3, 5, 16, 17))
    return Layout(rank, batch, channels, choose.choice(data_formats))


def irregular_cases(count: int, seed: int, dtypes=FLOATS + INTEGERS) -> list[IrregularCase]:
    """Adaptive and fractional pooling over ranks, layouts, sizes, dtypes and kinds of data."""
    choose = random.Random(seed)
    random_ = np.random.default_rng(seed)
    cases = []
    for number in range(count):
        kernel = None
        if number % 2:
            rank = choose.choice((2, 3))
            size = tuple(choose.randint(1, (0, 11, 6)[rank - 1]) for _ in range(rank))
            kernel = tuple(choose.randint(1, min(n, 4)) for n in size)
            cells = tuple(choose.randint(1, n - k + 1) for n, k in zip(size, kernel))
        else:
            rank = choose.choice((1, 2, 2, 3))
            size = tuple(choose.randint(1, (40, 11, 6)[rank - 1]) for _ in range(rank))
            cells = tuple(choose.choice((1, n, choose.randint(1, n + 2))) for n in size)
        layout, dtype = drawn_layout(rank, choose), choose.choice(dtypes)
        x = planes(layout, size, dtype, choose, random_)
        samples = random_.random((layout.planes, rank), dtype=np.float32)
        cases.append(IrregularCase(layout, size, dtype, x, cells, kernel, samples))
    return cases


def generated_cases(
    count: int, seed: int, dtypes=FLOATS + INTEGERS, adjacent: float = 0, long: bool = False
) -> list[Case]:
    """Cases over ranks, layouts, windows, sizes, dtypes and kinds of data.

    ``adjacent`` is the proportion of cases with the usual windows, whose stride is the kernel on
    all axes. With ``long`` one axis has more than 2,048 positions.
    """
    choose = random.Random(seed)
    random_ = np.random.default_rng(seed)
    cases: list[Case] = []
    while len(cases) < count:
        rank = choose.choice((1, 2, 2, 3))
        kernel = tuple(choose.randint(1, 4) for _ in range(rank))
        dilation = tuple(choose.choice((1, 1, 2, 3)) for _ in range(rank))
        stride = tuple(choose.choice((k, k, 1, 2, 3, 5)) for k in kernel)
        if adjacent and choose.random() < adjacent:
            kernel = stride = (choose.randint(2, 3),) * rank
            dilation = (1,) * rank
        size = tuple(choose.randint(1, (40, 11, 7)[rank - 1]) for _ in range(rank))
        if long:
            size = tuple(choose.sample([choose.randint(2049, 2200), *[1] * (rank - 1)], rank))
        most = [d * (k - 1) for k, d in zip(kernel, dilation)]
        kind = choose.choice(("equal", "equal", "pairs", "same"))
        if kind == "equal":
            padding = tuple(choose.randint(0, (n + 1) // 2) for n in most)
        elif kind == "pairs":
            padding = tuple((choose.randint(0, n), choose.randint(0, n)) for n in most)
        else:
            padding = reference.same_padding(kernel, stride, dilation, size)
        pool = reference.Pool(kernel, stride, padding, dilation, choose.random() < 0.4)
        if min(reference.pooled_size(pool, size)) < 1:
            continue
        layout, dtype = drawn_layout(rank, choose), choose.choice(dtypes)
        if long:
            layout = replace(layout, batch=None, channels=choose.randint(1, 2))
        x = planes(layout, size, dtype, choose, random_)
        cases.append(Case(layout, size, dtype, x, pool, kind == "same"))
    return cases


def planes(layout, size, dtype, choose: random.Random, random_) -> np.ndarray:
    """Planes of one dtype: of different numbers, with ties and special numbers, or subnormal."""
    shape = (layout.planes, *size)
    kind = choose.choice(("different", *["special"] * 3, "subnormal"))
    if dtype in INTEGERS:
        limits = mx.iinfo(dtype)
        low, high = max(limits.min, -(2**53)), min(limits.max, 2**53)
        x = random_.integers(low, high, shape, str(dtype)[9:], endpoint=True)
        special = np.array([limits.min, limits.min + 1, 0, 1, limits.max], x.dtype)
    else:
        x = random_.standard_normal(shape).astype(np.float32)
        special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0], np.float32)
        if kind == "special":
            x = np.round(x) * 0.5
        if kind == "subnormal":  # with zeros of both signs
            x = np.round(x * 20) * np.float32(SMALLEST[dtype])
    if kind == "special":
        # in other proportions in each plane; the last part of it keeps its numbers
        ends = random_.dirichlet([0.5] * 6, layout.planes)[:, :5].cumsum(axis=1)
        number = (random_.random((*shape, 1)) > ends.reshape(-1, *[1] * len(size), 5)).sum(axis=-1)
        x = np.where(number < 5, special[number % 5], x)
    return x if dtype in INTEGERS else to_numpy(mx.array(x).astype(dtype)).astype(np.float32)


def with_many_channels(case: Case, seed: int) -> Case:
    """The same call with 16, 64 or 128 channels: the CPU backend chooses other strategies."""
    layout = replace(case.layout, channels=(16, 64, 128)[seed % 3])
    drawn = planes(layout, case.size, case.dtype, random.Random(seed), np.random.default_rng(seed))
    return replace(case, layout=layout, planes=drawn)


def with_far_elements(case: Case, seed: int) -> Case:
    """The same call with two elements along the first axis, so far apart that one is padding."""
    choose, length = random.Random(seed), case.size[0]
    dilation = min(choose.randint(2 ** choose.randint(5, 30), 2**31), 2**31 - 1)
    stride, before, after = dilation - 1, dilation - 1, dilation - 1
    if choose.random() < 0.5:
        stride, total = choose.choice((1, 2, 3)), dilation + choose.randint(1 - length, 3)
        before = choose.randint(max(0, total - dilation), min(dilation, total))
        after = total - before
    ours = {"kernel": 2, "stride": stride, "padding": (before, after), "dilation": dilation}
    parameters = {name: (n, *getattr(case.pool, name)[1:]) for name, n in ours.items()}
    return replace(case, pool=replace(case.pool, **parameters), same=False)
