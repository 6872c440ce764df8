"""The one type of all arrays in signatures; shapes are in the docstrings."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
