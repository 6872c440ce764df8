"""Compiled kernels: arrays in, arrays out. The only Numba.

Kernels are serial and release the GIL; parallelism lives outside. Arithmetic is strict IEEE (no
reassociation, no fused multiply-add) with ``+ - * /`` and ``sqrt`` alone, all correctly rounded, so
results have the same bits on every processor and for every way of cutting the columns into chunks.
Nothing is compiled at import.

Symbols: `n` features (rows), `N` samples (columns), `p` components; a *chunk* is an ``(n, c)``
C-contiguous array of columns of the working matrix; its first `p` rows, which every move touches,
are given apart as `top` (p, c), a view of the chunk or a copy that replaces them; the *head* are
the columns below `n`, the *tail* those from `n` on. The tail of a chunk is cut into *spans* of
`SPAN` columns, and ``peaks[i, t]`` is the largest absolute entry of row ``i < p`` in the tail part
of span ``t`` (-1 where a span has none). Peaks are kept as the bits of the float, an integer of the
same size: absolute values order like their bits, and only integer maxima are vectorised without
licence to break NaNs (a factor of fifteen).

Inner loops run over unsigned numbers, ``range(np.uint64(first), np.uint64(stop))``: with signed
ones Numba tests each index for being negative, which keeps the loop from being vectorised. What is
written in the plainest way compiles fastest, and all of it is compiled before the first result: no
arrays made, no NumPy functions, no tuples to look a number up in. A loop over a literal number is
compiled written out, and one with conditions that do not change in it once for each way in which
they can fall: hence ``range(work.shape[0])`` for 2, and one place where a loop is called from.
"""
