"""Convert weights that were published for PyTorch: the same as ``python -m mlx_unpool_zoo.convert``.

python examples/convert.py quicknat finetuned_alldata_coronal.pth.tar quicknat --licence MIT
"""

from __future__ import annotations

import sys

from mlx_unpool_zoo.convert import main

if __name__ == "__main__":
    sys.exit(main())
