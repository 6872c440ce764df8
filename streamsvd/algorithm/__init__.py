"""The algorithm of the paper, in its own steps.

C. Rusu, "An iterative coordinate descent algorithm to compute sparse low-rank approximations", IEEE
Signal Processing Letters, 2021.

======================================  ========================================================
in the paper                            here
======================================  ========================================================
`X` (n x N), `p`, `m`                   `streamsvd.problem.Problem`; the working matrix is
                                        `streamsvd.matrix.working.WorkingMatrix`
Algorithm 1                             `algorithm_1.algorithm_1`
(i, j) of the largest score             `coordinator.Coordinator.best`, `streamsvd.kernels.scores`
score, Result 2 (``"nuclear"``)         `streamsvd.kernels.scores.score_row`
`G`, `H`: SVD of the 2x2 block          `coordinator.Coordinator.factor`,
                                        `streamsvd.kernels.rotations.svd_2x2`
``X <- G^T X H``                        `coordinator.Coordinator.rotate` in the leading columns,
                                        `streamsvd.matrix.partition.Partition.apply` in all others
``U <- U G``, ``V <- V H``              `log.TransformLog.append`
Remark 4, blocks                        `block_steps.block_algorithm`, `block_log.BlockLog`
baselines (random, Kogbetliantz)        `algorithm_1.random_pairs`, ``selection="kogbetliantz"``
======================================  ========================================================

`U` and `V` are never formed: they are the products of the factors in the log, of which
`TransformLog.components` and `TransformLog.right_vectors` build the first `p` columns when asked.

The same in plain NumPy, a line of the paper a line of code, is in ``tests/naive.py``; tests hold
the two equal.
"""
