"""Port models from PyTorch, Keras and other frameworks: load their weights, compare the results.

``from mlx_unpool import porting``. It needs NumPy and no other framework: state dicts may contain
tensors of PyTorch or arrays of NumPy or MLX.
"""

from .comparison import Comparison, compare_port
from .pools import pooled_indices
from .state_dicts import Report, convert_state_dict, load_state_dict, to_state_dict

__all__ = [
    "Comparison",
    "Report",
    "compare_port",
    "convert_state_dict",
    "load_state_dict",
    "pooled_indices",
    "to_state_dict",
]
