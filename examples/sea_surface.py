"""Sea surface temperatures with land, as packed integers on a grid, to maps of sparse patterns.

    python examples/sea_surface.py

Needs xarray. Writes ``sst.zarr`` as a model or a satellite product is kept: 50 years of monthly
anomalies (time, lat, lon) on a grid of 4 degrees, int16 with `scale_factor` and `_FillValue`, land
missing and some months unobserved here and there. Three centres of action are planted. The array is
read by its path, in strips of months, weighted by area; components come back as maps with the
coordinates of the data and NaN on land. Prints where each pattern lies and how much it explains,
and draws the maps to ``sea_surface.png`` (with the extra ``plot``).
"""

import numpy as np
import xarray

import streamsvd

MONTHS, CENTRES = 600, {"cold tongue": (0, 230), "gyre": (42, 180), "subpolar": (54, 320)}
rng = np.random.default_rng(3)
lat, lon = np.arange(-78.0, 79.0, 4.0), np.arange(2.0, 360.0, 4.0)

# ------------------------------------------------------------------------- write the store

y, x = np.meshgrid(np.radians(lat), np.radians(lon), indexing="ij")


def distance(south: float, west: float) -> np.ndarray:
    """Degrees from a place to each cell."""
    a, b = np.radians(south), np.radians(west)
    cosine = np.sin(y) * np.sin(a) + np.cos(y) * np.cos(a) * np.cos(x - b)
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


land = np.zeros(y.shape, dtype=bool)
for south, west, size in ((5, 20, 26), (45, 85, 34), (-10, 295, 18), (45, 260, 24)):
    land |= distance(south, west) < size  # continents, as round as can be
values = 0.5 * rng.standard_normal((MONTHS, *y.shape))
for (south, west), size, strength in zip(
    CENTRES.values(), (18, 14, 10), (2, 1.6, 1.4), strict=True
):
    months = np.convolve(rng.standard_normal(MONTHS + 5), np.ones(6) / np.sqrt(6), "valid")
    values += strength * months[:, None, None] * np.exp(-((distance(south, west) / size) ** 2))
values[:, land] = np.nan
values[rng.random(values.shape) < 0.01] = np.nan
time = np.datetime64("1970-01") + np.arange(MONTHS)
coords = {
    "time": time.astype("datetime64[ns]"),
    "lat": ("lat", lat, {"units": "degrees_north"}),
    "lon": ("lon", lon, {"units": "degrees_east"}),
}
sst = xarray.DataArray(values, coords, ("time", "lat", "lon"), name="sst")
packing = {"dtype": "int16", "scale_factor": 0.001, "_FillValue": -32768, "chunks": (60, 40, 90)}
sst.to_dataset().to_zarr("sst.zarr", mode="w", encoding={"sst": packing}, consolidated=False)

# --------------------------------------------------------------------------------- use it

result = streamsvd.sparse_pca(
    "sst.zarr/sst",
    len(CENTRES),
    sample_dim="time",
    max_fill=0.04,
    missing="mean",
    feature_weights="coslat",
)
print(result, "\n")
maps = result.to_xarray("sst.zarr/sst")  # patterns (component, lat, lon), scores (component, time)
for k in range(len(CENTRES)):
    one = np.abs(maps.patterns[k])  # in degrees, for a score of one
    peak = one.where(one == one.max(), drop=True)
    here = float(peak.lat[0]), float(peak.lon[0])
    name = min(CENTRES, key=lambda c: np.hypot(CENTRES[c][0] - here[0], CENTRES[c][1] - here[1]))
    share = result.explained_variance_ratio[k]
    print(
        f"component {k}: {int((one > 0).sum())} cells about {here[0]:.0f} N, {here[1]:.0f} E "
        f"(the {name}), {share:.1%} of the variance"
    )
blank = int(maps.patterns[0].isnull().sum())
print(f"cells of land: {len(result.left_out)} of {land.size}, NaN in the maps: {blank}")
print(f"missing besides: {result.n_missing} values, taken as the means of their cells")

try:
    result.plot().savefig("sea_surface.png")
    print("saved sea_surface.png")
except streamsvd.OptionError as error:  # matplotlib is not installed
    print(error)
