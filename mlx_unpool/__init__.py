"""Max pooling with indices and max unpooling for MLX."""

try:
    from ._backends import use_backend
except ImportError as error:  # with this name, ``python -m`` prints the message as one line
    raise ImportError(
        f"mlx_unpool needs MLX ({error}). On Linux, an extra installs it: cuda12, cuda13 or cpu, "
        'as in pip install "mlx-unpool[cpu] @ git+https://github.com/mlx-unpool/mlx-unpool"',
        name=__name__,
    ) from None
from ._derivatives import exporting
from ._index_checks import check_indices, checking
from ._index_formats import convert_indices
from ._replace import replace_max_pools
from .adaptive import (
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
)
from .fractional import (
    FractionalMaxPool2d,
    FractionalMaxPool3d,
    fractional_max_pool2d,
    fractional_max_pool3d,
)
from .pooling import MaxPool1d, MaxPool2d, MaxPool3d, max_pool1d, max_pool2d, max_pool3d
from .unpooling import (
    MaxUnpool1d,
    MaxUnpool2d,
    MaxUnpool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)

__version__ = "0.1.0"
__all__ = [
    "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "FractionalMaxPool2d",
    "FractionalMaxPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d",
    "MaxUnpool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    "check_indices", "checking", "convert_indices", "exporting", "fractional_max_pool2d",
    "fractional_max_pool3d", "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool1d",
    "max_unpool2d", "max_unpool3d", "replace_max_pools", "use_backend",
]  # fmt: skip
