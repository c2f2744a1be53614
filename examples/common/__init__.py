"""What the example programs share. Ends a program, in one line, if a package of its extra is missing."""

import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGES = "mlx_unpool mlx_unpool_zoo numpy sklearn scipy matplotlib PIL tqdm pydantic yaml safetensors"
PACKAGES += " huggingface_hub pooch tflite nibabel nilearn"
if missing := [name for name in PACKAGES.split() if not find_spec(name)]:
    program, names = Path(sys.argv[0]).name, ", ".join(missing)
    sys.exit(f'Not installed: {names}. {program} needs the extra [examples]: pip install ".[examples]"')
