"""Makes a Linux process look like one on a Mac: the default device is the emulated GPU.

- MLX's functions for devices and streams are replaced. A stream of the GPU is a CPU stream in a
  list: MLX's own operations run on the CPU, whichever device they are for.
- ``mx.fast.metal_kernel`` runs its kernels on :class:`emulator.Emulator`, which checks every
  launch. A launch that is not clean is an error.
- The hook ``mlx_unpool._backends.is_gpu_stream`` tells the library which streams belong to the
  emulated GPU.
- ``mx.compile`` calls its functions without compiling them, because compiled code cannot call the
  emulated device.
"""

import contextlib
import functools
import os
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

INFO = {"device_name": "Emulated Apple GPU", "architecture": "applegpu_g13s", "memory_size": 2**35}

mx: Any = None  # mlx.core, with the functions below
launched = {"run": 0}


class Devices:
    """MLX's functions for devices and streams, with a GPU."""

    def __init__(self, mx: ModuleType) -> None:
        self.real = {name: getattr(mx, name) for name in self.replaced}
        self.cpu, self.gpu = mx.Device(mx.cpu, 0), mx.Device(mx.gpu, 0)
        self.default = self.gpu
        self.gpu_streams: list[Any] = []
        self.first = self._new("new_stream")
        self.thread = threading.local()  # its device and its default stream on the GPU
        for name in self.replaced:
            setattr(mx, name, getattr(self, name, functools.partial(self._new, name)))
        mx.is_available = lambda device: True
        mx.device_count = lambda device: 1
        mx.metal.is_available = lambda: True

    replaced = (
        *("device_info", "default_device", "set_default_device"),
        *("default_stream", "set_default_stream", "stream", "synchronize"),
        *("new_stream", "new_thread_local_stream", "new_thread_unsafe_stream"),
    )

    def is_gpu(self, device: Any) -> bool:
        return (device.type if isinstance(device, mx.Device) else device) == mx.gpu

    def is_gpu_stream(self, stream: Any) -> bool:
        return any(type(stream) is type(known) and stream == known for known in self.gpu_streams)

    def device_info(self, device: Any = None) -> dict[str, Any]:
        device = self.default_device() if device is None else device
        return dict(INFO) if self.is_gpu(device) else self.real["device_info"](mx.cpu)

    def default_device(self) -> Any:
        return getattr(self.thread, "device", None) or self.default

    def set_default_device(self, device: Any) -> None:
        self.default = self.gpu if self.is_gpu(device) else self.cpu
        self.thread.device = None

    def default_stream(self, device: Any) -> Any:
        if not self.is_gpu(device):
            return self.real["default_stream"](mx.cpu)
        stream = getattr(self.thread, "stream", None)
        if stream is None:
            main = threading.current_thread() is threading.main_thread()
            stream = self.thread.stream = self.first if main else self._new("new_stream")
        return stream

    def set_default_stream(self, stream: Any) -> None:
        if self.is_gpu_stream(stream):
            self.thread.stream = stream
        else:
            self.real["set_default_stream"](stream)

    @contextlib.contextmanager
    def stream(self, wanted: Any) -> Iterator[None]:
        thread = self.thread
        before = getattr(thread, "device", None), getattr(thread, "stream", None)
        if isinstance(wanted, (mx.Device, mx.DeviceType)):
            on_gpu, stream = self.is_gpu(wanted), self.default_stream(wanted)
        else:
            on_gpu, stream = self.is_gpu_stream(wanted), wanted
            if on_gpu:
                thread.stream = wanted
        thread.device = self.gpu if on_gpu else self.cpu
        try:
            with self.real["stream"](stream):
                yield
        finally:
            thread.device, thread.stream = before

    def synchronize(self, stream: Any = None) -> None:
        if isinstance(stream, (mx.Device, mx.DeviceType)):
            stream = self.default_stream(stream)
        self.real["synchronize"](*([] if stream is None else [stream]))

    def _new(self, function: str, device: Any = None) -> Any:
        stream = self.real[function](mx.cpu)
        if device is None or self.is_gpu(device):
            self.gpu_streams.append(stream)
        return stream


devices: Devices


def replace_devices(module: ModuleType) -> None:
    """Gives ``mlx.core`` a GPU, right after it was imported."""
    global mx, devices
    mx = module
    devices = Devices(module)
    os.environ.setdefault("PATH", os.defpath)  # g++ needs it to find its parts
    mx.disable_compile()
    real_kernel = mx.fast.metal_kernel
    mx.fast.metal_kernel = lambda **arguments: Kernel(real_kernel(**arguments))


def replace_hook(backends: ModuleType) -> None:
    """Tells the library which streams are the emulated GPU's."""
    real = backends.is_gpu_stream
    backends.is_gpu_stream = lambda stream: devices.is_gpu_stream(stream) or real(stream)


class Kernel:
    """What ``mx.fast.metal_kernel`` returns."""

    lock = threading.RLock()  # the record of memory accesses is one for the process
    emulator: Any = None

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.launches: dict[str, Any] = {}  # of shapes and options

    def __call__(self, *, inputs: list[Any], **options: Any) -> list[Any]:
        import emulator  # after MLX

        options["stream"] = mx.gpu
        inputs = [x if isinstance(x, mx.array) else mx.array(x) for x in inputs]
        if not emulator.known(inputs):
            return self._placeholders(inputs, options)
        with self.lock, devices.real["stream"](devices.real["default_stream"](mx.cpu)):
            if Kernel.emulator is None:
                Kernel.emulator = emulator.Emulator()
            key = repr(([(x.shape, x.dtype) for x in inputs], options))
            if key not in self.launches:
                self.launches[key] = emulator.launch_of(self.kernel, inputs, options)
            outputs = Kernel.emulator.run(self.launches[key], inputs)
            mx.eval(outputs)
            Kernel.emulator.reports.clear()
            launched["run"] += 1
        return outputs

    def _placeholders(self, inputs: list[Any], options: dict[str, Any]) -> list[Any]:
        """Outputs for a trace of MLX.

        In an export they come from the real operation; otherwise they are never read.
        """
        try:
            return self.kernel(inputs=inputs, **options)
        except RuntimeError:  # no Metal
            shapes = zip(options["output_shapes"], options["output_dtypes"], strict=True)
            return [mx.zeros(shape, dtype) for shape, dtype in shapes]
