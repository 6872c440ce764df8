"""`streamsvd convert`: every format round trip, what is refused, and how much memory it takes."""

import gzip
import os
import re
import subprocess
import sys
import tracemalloc
import zipfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import zarr
from scipy import io as scipy_io
from scipy import sparse

from streamsvd import OptionError, SourceError, sparse_pca, sparse_svd
from streamsvd.cli import text_tables
from streamsvd.cli.convert import convert
from streamsvd.data import open_data
from streamsvd.options import Ask
from streamsvd.storage import outputs
from streamsvd.storage.chunks import missing_chunk_keys

DTYPES = [
    "bool",
    "uint8",
    "int16",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    ">f4",
    ">i2",
]


def matrix(dtype="float64", shape=(7, 23)):
    numbers = np.random.default_rng(0).integers(0, 100, shape)
    numbers[:, 4:9] = 0  # chunks of zeros must be written too
    return (numbers % 2 if dtype == "bool" else numbers).astype(dtype)


def check(out, expected, chunks=None):
    """`out` holds the same numbers in native byte order, and all of its chunks are there."""
    array = zarr.open_array(out, mode="r")
    assert array.dtype == expected.dtype.newbyteorder("=")
    assert chunks is None or array.chunks == chunks
    assert missing_chunk_keys(array) == []
    np.testing.assert_array_equal(array[...], expected)


# ------------------------------------------------------------------------------- .npy, .npz


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_npy(tmp_path, dtype, axis, order):
    X = np.array(matrix(dtype), order=order)
    np.save(tmp_path / "x.npy", X)
    limit = 3 * X.itemsize * X.shape[1 - axis] + 1  # three samples and a bit
    done = convert(tmp_path / "x.npy", tmp_path / "x.zarr", chunk_bytes=limit, sample_axis=axis)
    chunks = (7, 3) if axis else (3, 23)
    assert (done.shape, done.chunks, done.sample_axis) == ((7, 23), chunks, axis)
    assert done.dtype == X.dtype.newbyteorder("=")
    check(tmp_path / "x.zarr", X, chunks)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("axis", [0, 1])
def test_npz(tmp_path, axis, order, save):
    X = np.array(matrix("int16"), order=order)
    save(tmp_path / "x.npz", first=np.ones(3), second=X)
    done = convert(
        tmp_path / "x.npz", tmp_path / "x.zarr", key="second", chunk_bytes=100, sample_axis=axis
    )
    assert done.sample_axis == axis
    check(tmp_path / "x.zarr", X)


def test_npz_of_one_member_needs_no_key(tmp_path):
    np.savez(tmp_path / "x.npz", only=matrix())
    convert(tmp_path / "x.npz", tmp_path / "x.zarr")
    check(tmp_path / "x.zarr", matrix())


@pytest.mark.parametrize("key", [None, "third"])
def test_npz_error_lists_the_keys(tmp_path, key):
    np.savez(tmp_path / "x.npz", first=matrix(), second=matrix())
    with pytest.raises(SourceError, match=r"holds 2 matrices.*one of: first, second"):
        convert(tmp_path / "x.npz", tmp_path / "x.zarr", key=key)


@pytest.mark.parametrize(
    ("shape", "axis"), [((5, 9), 1), ((9, 5), 0), ((6, 6), 1), ((1, 4), 1), ((4, 1), 0)]
)
def test_longer_axis_by_default(tmp_path, shape, axis):
    np.save(tmp_path / "x.npy", matrix(shape=shape))
    assert convert(tmp_path / "x.npy", tmp_path / "x.zarr").sample_axis == axis
    check(tmp_path / "x.zarr", matrix(shape=shape), shape)


@pytest.mark.parametrize("axis", [0, 1])
def test_chunk_is_one_sample_at_least(tmp_path, axis):
    np.save(tmp_path / "x.npy", matrix())
    convert(tmp_path / "x.npy", tmp_path / "x.zarr", chunk_bytes=1, sample_axis=axis)
    check(tmp_path / "x.zarr", matrix(), (7, 1) if axis else (1, 23))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtype(tmp_path, dtype):
    np.save(tmp_path / "x.npy", matrix("uint8"))
    assert convert(tmp_path / "x.npy", tmp_path / "x.zarr", dtype=dtype).dtype == dtype
    check(tmp_path / "x.zarr", matrix(dtype))


def test_every_chunk_is_written_once_and_whole(tmp_path, monkeypatch):
    writes = []

    class Recorder:
        def __setitem__(self, where, block):
            writes.append((where[1].start, where[1].stop, block.shape))

    monkeypatch.setattr("streamsvd.cli.convert.new_output", lambda *_: nullcontext(Recorder()))
    np.save(tmp_path / "x.npy", matrix(shape=(2, 7)))
    convert(tmp_path / "x.npy", tmp_path / "x.zarr", chunk_bytes=3 * 2 * 8)
    assert writes == [(0, 3, (2, 3)), (3, 6, (2, 3)), (6, 7, (2, 1))]


def test_progress(tmp_path):
    calls = []
    np.savez(tmp_path / "x.npz", matrix())
    (tmp_path / "x.csv").write_text("1,2\n3,4\n")
    for name in ("x.npz", "x.csv"):
        convert(
            tmp_path / name, tmp_path / f"{name}.zarr", progress=lambda *call: calls.append(call)
        )
    ends = {stage: done == total for stage, done, total in calls}
    assert ends == {"unpack": True, "parse": True, "convert": True}


def test_fit_of_what_was_converted(tmp_path):
    X = np.random.default_rng(1).standard_normal((6, 40))
    np.save(tmp_path / "x.npy", X.T)
    done = convert(tmp_path / "x.npy", tmp_path / "x.zarr", chunk_bytes=500)
    fitted = sparse_svd(tmp_path / "x.zarr", 2, n_transforms=9, sample_axis=done.sample_axis)
    expected = sparse_svd(X, 2, n_transforms=9)
    np.testing.assert_array_equal(fitted.components.toarray(), expected.components.toarray())


# -------------------------------------------------------------------------------------- text

NUMBERS = np.array([[1.0, -2.5, 3e10], [4.0, np.nan, 6.0], [7.0, 8.0, np.inf]])


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("plain.csv", "1,-2.5,3e10\n4,nan,6\n7,8,inf\n", {}),
        ("header.csv", "a,b,c\n1,-2.5,3e10\n4,nan,6\n7,8,inf", {}),
        ("mark.csv", "\ufeff1,-2.5,3e10\n4,nan,6\n7,8,inf\n", {}),
        ("mark_and_header.csv", '\ufeff"a","b","c"\n1,-2.5,3e10\n4,nan,6\n7,8,inf\n', {}),
        ("windows.csv", "a,b,c\r\n1, -2.5, 3e10\r\n4, nan, 6\r\n7, 8, inf\r\n", {}),
        ("comments.csv", "# of\n\na,b,c\n1,-2.5,3e10 # x\n\n4,nan,6\n#\n7,8,inf\n\n\n", {}),
        ("skip.csv", "1,2\n9,9,9\na,b,c\n1,-2.5,3e10\n4,nan,6\n7,8,inf\n", {"skip_lines": 2}),
        ("numbers_above.csv", "1,2,3\n1,-2.5,3e10\n4,nan,6\n7,8,inf\n", {"skip_lines": 1}),
        ("semicolon.csv", "1;-2.5;3e10\n4;nan;6\n7;8;inf\n", {"delimiter": ";"}),
        ("tabs.tsv", "a b\tc\td\n1\t-2.5\t3e10\n4\tnan\t6\n7\t8\tinf\n", {}),
        ("white.txt", "  1 -2.5\t3e10\n4   nan 6 \n7 8 inf\n", {}),
        ("UPPER.CSV", "1,-2.5,3e10\n4,nan,6\n7,8,inf\n", {}),
        ("packed.csv.gz", "a,b,c\n1,-2.5,3e10\n4,nan,6\n7,8,inf\n", {}),
        ("packed.txt.gz", "1 -2.5 3e10\n4 nan 6\n7 8 inf\n", {}),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value[:30] else "",
)
@pytest.mark.parametrize("piece", [1, 10, text_tables.PIECE])
def test_text(tmp_path, monkeypatch, name, text, options, piece):
    monkeypatch.setattr(text_tables, "PIECE", piece)
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    convert(tmp_path / name, tmp_path / "x.zarr", chunk_bytes=24, **options)
    place = tmp_path / "x.zarr" / ("X" if re.search("[a-d]", text[:11]) else "")
    check(place, NUMBERS, (3, 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n3,4\n5,x\n", "line 3: 'x' is not a number"),
        ("1,2\n\n# no\n3,no\n", "line 4: 'no' is not a number"),
        ("1,2\n3\n5,6\n", "line 2 has 1 fields, those above have 2"),
        ("1,2\n3,4\n5,6,7\n", "line 3 has 3 fields, those above have 2"),
        ("a,b\n1,2\n3,4,\n", "line 3 has 3 fields, those above have 2"),
        ("a,b\nc,d\n1,2\n", "line 2: 'c' in column 'a' is not a number"),
        ("gene,1,2\nx,3,4\n", "line 1: 'gene' is not a number"),
        ("a;b\n1;2\n", "line 2: '1;2' in column 'a;b' is not a number; check the delimiter"),
        ("1,2\n3,1_000\n", "line 2: '1_000' is not a number"),
        ("1,2\n3,NA\n4,1_000\n", "line 3: '1_000' is not a number"),
        ("a,b\n1,2,3\n", "the header has 2 fields, line 2 or the next has 3"),
        ("a,b\nx,2\n", "'x' in column 'a' is not a number; .* id_column="),
        ("", r"has shape \(0, 0\); need"),
        ("\n# nothing\n", r"has shape \(0, 0\); need"),
        ("a,b\n", r"has shape \(0, 0\); need"),
    ],
)
@pytest.mark.parametrize("piece", [1, text_tables.PIECE])
def test_bad_text_names_the_line(tmp_path, monkeypatch, text, message, piece):
    monkeypatch.setattr(text_tables, "PIECE", piece)
    (tmp_path / "x.csv").write_text(text, encoding="utf-8")
    with pytest.raises(SourceError, match=message):
        convert(tmp_path / "x.csv", tmp_path / "x.zarr")
    assert os.listdir(tmp_path) == ["x.csv"]


def test_bad_line_far_down(tmp_path):
    lines = [f"{k},1.5,{k / 7}" for k in range(150_000)]  # several pieces
    lines[123_455] = "1,2,3,4"
    (tmp_path / "x.csv").write_text("a,b,c\n" + "\n".join(lines))
    with pytest.raises(SourceError, match="line 123457 has 4 fields, those above have 3"):
        convert(tmp_path / "x.csv", tmp_path / "x.zarr")


def test_skipping_all_lines(tmp_path):
    (tmp_path / "x.csv").write_text("1,2\n3,4\n")
    with pytest.raises(SourceError, match="some of each"):
        convert(tmp_path / "x.csv", tmp_path / "x.zarr", skip_lines=2)


def test_other_encodings_fail_as_numbers(tmp_path):
    (tmp_path / "x.csv").write_bytes("höhe,breite\n1,2\n".encode("latin-1"))
    with pytest.raises(SourceError, match=r"line 1: .* is not UTF-8: .*skip_lines="):
        convert(tmp_path / "x.csv", tmp_path / "x.zarr")
    convert(tmp_path / "x.csv", tmp_path / "x.zarr", skip_lines=1)
    check(tmp_path / "x.zarr", np.array([[1.0, 2.0]]))
    (tmp_path / "y.csv").write_text("a,b\n1,2\n", encoding="utf-16")
    with pytest.raises(SourceError, match="line"):
        convert(tmp_path / "y.csv", tmp_path / "y.zarr")


NAMED = [
    ("first.csv", 'cell,"a, 1","b #2"\nx,1,2\n"y, z",3,4\nNA,5,6\n', "cell"),
    ("middle.csv", '"a, 1",cell,"b #2"\n1,x,2\n3,"y, z",4\n5,NA,6\n', "cell"),
    ("last.tsv", 'a, 1\t"b #2"\tcell\n1\t2\tx\n3\t4\ty, z\n5\t6\tNA\n', "cell"),
    ("years.csv", '1999,2000,2001\nx,1,2\n"y, z",3,4\nNA,5,6\n', "1999"),
    ("pandas.csv", ',"a, 1","b #2"\nx,1,2\n"y, z",3,4\nNA,5,6\n', ""),
    ("r.txt", '"a, 1" "b #2"\n"x" 1 2\n"y, z" 3 4\n"NA" 5 6\n', ""),
    ("packed.csv.gz", '"a, 1","b #2",cell\n1,2,x\n3,4,"y, z"\n5,6,NA\n', "cell"),
]


@pytest.mark.parametrize(("name", "text", "column"), NAMED, ids=[name for name, *_ in NAMED])
@pytest.mark.parametrize("piece", [1, text_tables.PIECE])
@pytest.mark.parametrize("hole", [False, True])
def test_names_are_kept(tmp_path, monkeypatch, name, text, column, piece, hole):
    """Those of columns and of rows; also beside missing values, which are parsed another way."""
    monkeypatch.setattr(text_tables, "PIECE", piece)
    monkeypatch.setattr(outputs, "NAMES", 2)
    X = np.array([[1.0, 2], [3, 4], [5, 6]])
    if hole:
        text, X[1, 1] = text.replace("4", "#N/A"), np.nan
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    out = tmp_path / "x.zarr"
    done = convert(tmp_path / name, out, id_column=column, sample_axis=0)
    assert done.is_named
    check(out / "X", X)
    source = open_data(out, Ask())
    columns = ["2000", "2001"] if name == "years.csv" else ["a, 1", "b #2"]
    assert source.features.names.tolist() == columns
    across = open_data(out, Ask(1))
    assert across.features.names.tolist() == ["x", "y, z", "NA"]


@pytest.mark.filterwarnings("ignore")  # of AnnData and Zarr, of their own formats
def test_anndata_reads_what_was_converted(tmp_path):
    anndata = pytest.importorskip("anndata")
    (tmp_path / "x.csv").write_text("a,b,id\n1,NA,x\n3,4,y\n")
    convert(tmp_path / "x.csv", tmp_path / "x.zarr", id_column="id")
    made = anndata.read_zarr(tmp_path / "x.zarr")
    np.testing.assert_array_equal(made.X, [[1, np.nan], [3, 4]])
    assert [*made.obs_names, *made.var_names] == ["x", "y", "a", "b"]


def test_missing_values_of_text_are_missing(tmp_path):
    """By all their names; an error that names the place, or the mean."""
    words = [word for word in text_tables.MISSING if word] + ["#N/A", '"NA"', " NA "]
    rows = [f"{k},{k * k % 7}" for k in range(20)]
    text = [*rows, *(f"{word},1" for word in words), "3,"]
    (tmp_path / "x.csv").write_text("a,b\n" + "\n".join(text))
    convert(tmp_path / "x.csv", tmp_path / "x.zarr", sample_axis=0)
    expected = [[k, k * k % 7] for k in range(20)] + [[np.nan, 1]] * len(words) + [[3, np.nan]]
    check(tmp_path / "x.zarr" / "X", np.array(expected))
    with pytest.raises(SourceError, match="NaN at feature 0, sample 20"):
        sparse_pca(tmp_path / "x.zarr", 1)
    made = sparse_pca(tmp_path / "x.zarr", 1, missing="mean")
    assert made.n_missing == len(words) + 1
    assert made.feature_names.tolist() == ["a", "b"]
    (tmp_path / "y.csv").write_text("NA,1\n2,3\n")  # no header
    convert(tmp_path / "y.csv", tmp_path / "y.zarr")
    check(tmp_path / "y.zarr", np.array([[np.nan, 1], [2, 3]]))


def test_names_that_are_not_there(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    for column, words in (
        ("c", "id_column='c' is not in the header of .*, line 1: a, b"),
        ("", "id_column='' needs a column without a name"),
    ):
        with pytest.raises(OptionError, match=words):
            convert(tmp_path / "x.csv", tmp_path / "x.zarr", id_column=column)
    assert os.listdir(tmp_path) == ["x.csv"]


# -------------------------------------------------------------------------------------- .mat


@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8", "int16", "bool"])
@pytest.mark.parametrize("axis", [0, 1])
def test_mat(tmp_path, dtype, axis):
    scipy_io.savemat(tmp_path / "x.mat", {"other": "text", "X": matrix(dtype)})
    convert(tmp_path / "x.mat", tmp_path / "x.zarr", key="X", chunk_bytes=50, sample_axis=axis)
    X = matrix(dtype)
    check(tmp_path / "x.zarr", X.astype("uint8") if dtype == "bool" else X)  # as MATLAB has it


@pytest.mark.parametrize("version", ["4", "5"])
@pytest.mark.parametrize("axis", [0, 1])
def test_sparse_mat(tmp_path, axis, version):
    scipy_io.savemat(tmp_path / "x.mat", {"X": sparse.csc_array(matrix())}, format=version)
    convert(tmp_path / "x.mat", tmp_path / "x.zarr", chunk_bytes=200, sample_axis=axis)
    check(tmp_path / "x.zarr", matrix())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": matrix(), "b": matrix()}, "holds 2 matrices; pass key= with one of: a, b"),
        ({"a": {"b": 1.0}}, "x.mat/a is a struct, not a matrix"),
        ({"a": "text"}, "x.mat/a is a char, not a matrix"),
        ({"a": np.array([1, "b"], dtype=object)}, "x.mat/a is a cell, not a matrix"),
        ({"a": matrix() * 1j}, "complex128, not real numbers"),
        ({"a": np.zeros((2, 3, 4))}, r"shape \(2, 3, 4\)"),
        ({"a": np.zeros((0, 3))}, "some of each"),
    ],
)
def test_mat_refused(tmp_path, content, message):
    scipy_io.savemat(tmp_path / "x.mat", content)
    with pytest.raises(SourceError, match=message):
        convert(tmp_path / "x.mat", tmp_path / "x.zarr")


def test_mat_of_version_7_3_names_the_remedy(tmp_path):
    header = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"
    (tmp_path / "x.mat").write_bytes(header.ljust(512, b"\0") + b"\x89HDF\r\n\x1a\n" + bytes(512))
    with pytest.raises(SourceError, match=r'HDF5.*save\(file, name, "-v7"\).*h5py'):
        convert(tmp_path / "x.mat", tmp_path / "x.zarr")


@pytest.mark.parametrize("size", [0, 100, 200, -40])
@pytest.mark.parametrize("compressed", [False, True])
def test_damaged_mat(tmp_path, size, compressed):
    scipy_io.savemat(tmp_path / "x.mat", {"X": matrix()}, do_compression=compressed)
    data = (tmp_path / "x.mat").read_bytes()
    (tmp_path / "x.mat").write_bytes(data[:size])
    with pytest.raises(SourceError, match=r"x\.mat"):
        convert(tmp_path / "x.mat", tmp_path / "x.zarr")


# ----------------------------------------------------------------------------------- refused


class Trap:
    """Leaves a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_objects_are_refused_without_unpickling(tmp_path, kind):
    X = np.array([[Trap(tmp_path / "sprung")]], dtype=object)
    save = np.save if kind == "npy" else np.savez
    save(tmp_path / f"x.{kind}", X, allow_pickle=True)
    with pytest.raises(SourceError, match="holds object, not real numbers"):
        convert(tmp_path / f"x.{kind}", tmp_path / "x.zarr")
    assert os.listdir(tmp_path) == [f"x.{kind}"]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(5), r"has shape \(5,\); need features and samples"),
        (np.zeros((2, 3, 4)), r"has shape \(2, 3, 4\); need features and samples"),
        (np.float64(3), r"has shape \(\); need features and samples"),
        (np.zeros((0, 5)), r"has shape \(0, 5\); need"),
        (np.zeros((2, 2), dtype=complex), "complex128, not real numbers"),
        (np.zeros((2, 2), dtype="M8[s]"), r"datetime64\[s\], not real numbers"),
        (np.zeros((2, 2), dtype="U3"), "U3, not real numbers"),
        (np.zeros((2, 2), dtype=[("a", "f8")]), "not real numbers"),
        (np.zeros((2, 2), dtype=np.longdouble), "save it as float64"),
    ],
)
@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_what_is_no_real_matrix_is_refused(tmp_path, kind, X, message):
    (np.save if kind == "npy" else np.savez)(tmp_path / f"x.{kind}", X)
    with pytest.raises(SourceError, match=message):
        convert(tmp_path / f"x.{kind}", tmp_path / "x.zarr")
    assert os.listdir(tmp_path) == [f"x.{kind}"]


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 255
    path.write_bytes(data)


def shorten_member(path):
    with zipfile.ZipFile(path) as archive:
        data = archive.read("arr_0.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("arr_0.npy", data[:-16])


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("x.npy", lambda path: cut(path, -1), "shorter than its header says"),
        ("x.npy", lambda path: cut(path, 100), "not a readable .npy file"),
        ("x.npy", lambda path: cut(path, 0), "not a readable .npy file"),
        ("x.npy", lambda path: flip(path, 6), "not a readable .npy file"),  # the version
        ("x.npz", lambda path: cut(path, -1), "is damaged"),
        ("x.npz", lambda path: cut(path, 0), "is damaged"),
        ("x.npz", lambda path: flip(path, 500), "is damaged: Bad CRC-32"),
        ("x.npz", shorten_member, "shorter than its header says"),
        ("x.csv.gz", lambda path: cut(path, -10), "is damaged"),
        ("x.csv.gz", lambda path: flip(path, 30), "is damaged|is not a number"),
        ("x.csv.gz", lambda path: path.write_text("1,2"), "is damaged: Not a gzipped file"),
    ],
)
def test_damage_is_noticed(tmp_path, name, damage, message):
    X = np.random.default_rng(0).standard_normal((10, 20))
    if name == "x.npy":
        np.save(tmp_path / name, X)
    elif name == "x.npz":
        np.savez(tmp_path / name, X)
    else:
        np.savetxt(tmp_path / name, X, delimiter=",")
    damage(tmp_path / name)
    with pytest.raises(SourceError, match=message):
        convert(tmp_path / name, tmp_path / "x.zarr")
    assert os.listdir(tmp_path) == [name]


def test_numbers_beyond_float32(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[1.0, 2e300, np.inf]]))
    with pytest.raises(SourceError, match='beyond the range of float32; use dtype="float64"'):
        convert(tmp_path / "x.npy", tmp_path / "x.zarr", dtype="float32", chunk_bytes=4)
    assert os.listdir(tmp_path) == ["x.npy"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("x.npy", {"key": "a"}, "key=a is for .npz and .mat files"),
        ("x.csv", {"key": "a"}, "key=a is for .npz and .mat files"),
        ("x.npy", {"delimiter": ","}, "no text file"),
        ("x.npy", {"skip_lines": 1}, "no text file"),
        ("x.csv", {"delimiter": ", "}, "one character"),
        ("x.csv", {"delimiter": ""}, "one character"),
        ("x.csv", {"delimiter": "#"}, "one character"),
        ("x.csv", {"delimiter": "\n"}, "one character"),
        ("x.csv", {"delimiter": "."}, "one character"),
        ("x.csv", {"delimiter": "1"}, "one character"),
        ("x.csv", {"delimiter": "e"}, "one character"),
        ("x.csv", {"skip_lines": -1}, "skip_lines must be at least 0; got -1"),
        ("x.csv", {"sample_axis": 2}, "sample_axis must be 0, 1 or None; got 2"),
        ("x.csv", {"dtype": "int8"}, "dtype must be one of float32, float64; got 'int8'"),
        ("x.csv", {"chunk_bytes": "much"}, "chunk_bytes must be a number of bytes or a size"),
    ],
)
def test_bad_options(tmp_path, name, options, message):
    np.save(tmp_path / "x.npy", matrix())
    np.savetxt(tmp_path / "x.csv", matrix(), delimiter=",")
    with pytest.raises(OptionError, match=message):
        convert(tmp_path / name, tmp_path / "x.zarr", **options)
    assert not (tmp_path / "x.zarr").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x.parquet", "cannot convert .*x.parquet: need .npy, .npz, .mat, .csv, .tsv, .txt"),
        ("x.npy.gz", "cannot convert"),
        ("x", "cannot convert"),
        (".csv", "cannot convert"),
        ("absent.npy", "no such file: .*absent.npy"),
        ("folder.npy", "folder.npy is not a file"),
    ],
)
def test_bad_paths(tmp_path, name, message):
    (tmp_path / "folder.npy").mkdir()
    for present in ("x.parquet", "x.npy.gz", "x", ".csv"):
        (tmp_path / present).touch()
    with pytest.raises(SourceError, match=message):
        convert(tmp_path / name, tmp_path / "new" / "x.zarr")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_existing_output_is_refused_and_untouched(tmp_path, kind):
    np.save(tmp_path / "x.npy", matrix())
    out = tmp_path / "x.zarr"
    if kind == "file":
        out.write_text("mine")
    elif kind == "folder":
        out.mkdir()
    else:
        out.symlink_to(tmp_path / "nowhere")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(OptionError, match="exists and is not overwritten"):
        convert(tmp_path / "x.npy", out)
    assert sorted(os.listdir(tmp_path)) == before
    assert kind != "file" or out.read_text() == "mine"


def test_interrupted_leaves_nothing(tmp_path):
    np.savez(tmp_path / "x.npz", matrix())

    def interrupt(stage, done, total):
        if stage == "convert":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(tmp_path / "x.npz", tmp_path / "x.zarr", chunk_bytes=100, progress=interrupt)
    assert os.listdir(tmp_path) == ["x.npz"]


# ------------------------------------------------------------------------------------ memory

LIMIT, SHAPE = 500_000_000, (1000, 250_000)  # a gigabyte of float32
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@pytest.fixture(params=["x.npy", "x.npz"])
def large(tmp_path, request):
    """A file whose numbers do not fit into `LIMIT`; few are not zero, so it is written fast."""
    path = tmp_path / "x.npy"
    X = np.lib.format.open_memmap(path, "w+", dtype="f4", shape=SHAPE)
    X[::100, ::1000] = 1
    X[-1, -1] = 7
    X.flush()
    del X
    if request.param == "x.npz":
        path = tmp_path / request.param
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.write(tmp_path / "x.npy", "X.npy")
        (tmp_path / "x.npy").unlink()
    yield path
    path.unlink()


def limited(*command):
    return subprocess.run(
        ["timeout", "300", "prlimit", f"--data={LIMIT}", sys.executable, *map(str, command)],
        env=os.environ | THREADS,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_files_larger_than_memory(large, tmp_path):
    load = "import sys, numpy; X = numpy.load(sys.argv[1]); X['X'] if '.npz' in sys.argv[1] else X"
    whole = limited("-c", load, large)
    assert whole.returncode != 0  # the limit is one
    assert "MemoryError" in whole.stderr or "Unable to allocate" in whole.stderr
    run = limited("-m", "streamsvd.cli.commands", "convert", large, tmp_path / "x.zarr", "--quiet")
    assert (run.returncode, run.stderr) == (0, "")
    array = zarr.open_array(tmp_path / "x.zarr", mode="r")
    assert (array.shape, array.dtype) == (SHAPE, np.float32)
    assert array[:, -1].tolist() == [0.0] * 999 + [7.0]
    assert array[:200, :2000].sum() == 4


def test_text_is_parsed_in_pieces(tmp_path):
    X = np.random.default_rng(0).standard_normal((60_000, 40)).round(3)
    with gzip.open(tmp_path / "x.csv.gz", "wt", compresslevel=1) as file:
        np.savetxt(file, X, fmt="%g", delimiter=",")
    tracemalloc.start()
    convert(tmp_path / "x.csv.gz", tmp_path / "x.zarr", chunk_bytes="1MiB")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10e6 < X.nbytes / 1.9  # 19 MB of numbers
    check(tmp_path / "x.zarr", X)
