"""A cube of spectral images: which few bands tell the materials apart, and where they lie.

    python examples/image_cube.py

Samples are the pixels of a cube (band, y, x), features its bands. With xarray the cube is taken
as it is, ``sample_dim=("y", "x")``, and components and scores come back with its coordinates;
without xarray the same pixels are rows of an array. Prints the wavelengths that each component
uses, and draws the loadings to ``image_cube.png`` (with the extra ``plot``).
"""

from importlib.util import find_spec

import numpy as np
from scipy.ndimage import gaussian_filter

import streamsvd

N_BANDS, HEIGHT, WIDTH = 60, 80, 120
rng = np.random.default_rng(1)
wavelength = np.linspace(400, 990, N_BANDS)  # nm
LINES = {"chlorophyll": 680, "water": 970, "ochre": 530}
"""Each material absorbs in a narrow line and lies in patches."""


def cube() -> np.ndarray:
    """(band, y, x) reflectances."""
    made = 0.5 + 0.02 * rng.standard_normal((N_BANDS, HEIGHT, WIDTH))
    for centre in LINES.values():
        amount = np.maximum(0, gaussian_filter(rng.standard_normal((HEIGHT, WIDTH)), 8))
        line = np.exp(-(((wavelength - centre) / 15) ** 2))
        made -= 0.4 * line[:, None, None] * amount / amount.max()
    return made.astype(np.float32)


values = cube()
if find_spec("xarray"):
    import xarray

    coords = {"band": wavelength, "y": np.arange(HEIGHT), "x": np.arange(WIDTH)}
    scene = xarray.DataArray(values, coords, ("band", "y", "x"), name="reflectance")
    result = streamsvd.sparse_pca(scene, len(LINES), sample_dim=("y", "x"), max_fill=0.1)
    maps = result.to_xarray(scene)["scores"].values
else:
    pixels = values.reshape(N_BANDS, -1)  # (bands, pixels): a Zarr array of it would do as well
    result = streamsvd.sparse_pca(pixels, len(LINES), max_fill=0.1)
    maps = result.transform(pixels).reshape(-1, HEIGHT, WIDTH)

print(result, "\n")
for k, loadings in enumerate(result.components.toarray()):
    used, strongest = wavelength[loadings != 0], wavelength[np.argmax(np.abs(loadings))]
    nearest = min(LINES, key=lambda name: abs(LINES[name] - strongest))
    print(
        f"component {k}: {len(used)} of {N_BANDS} bands, {used[0]:.0f} to {used[-1]:.0f} nm, "
        f"strongest at {strongest:.0f} nm ({nearest} at {LINES[nearest]} nm)"
    )
print(f"maps: {maps.shape} (component, y, x)")

try:
    names = [f"{nm:.0f} nm" for nm in wavelength]
    result.plot(feature_names=names).savefig("image_cube.png")
    print("saved image_cube.png")
except streamsvd.OptionError as error:  # matplotlib is not installed
    print(error)
