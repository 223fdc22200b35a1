"""Sequences turned round, and rows that replace others."""
from .cases import *


def reversed_sequences():
    for dtype in (np.int32, np.int64):
        both("ReverseSequence", [f(2, 4), i(3, 0, dtype=dtype)], seq_dim=1, batch_dim=0)
        both("ReverseSequence", [f(4, 2, 3), i(4, 1, dtype=dtype)], seq_dim=0, batch_dim=1)
        both("ReverseSequence", [f(3, 2, 4, 2), i(2, 3, 1, dtype=dtype)], seq_dim=2)
    both("ReverseSequence", [f(3, 2, 4), i(1, 2, 3, 3)], seq_dim=0, batch_dim=2)
    run("ReverseSequence", [f(2, 0), i(0, 0)], seq_dim=1)
    run("ReverseSequence", [f(0, 3), i()], seq_dim=1)
    for x in (ints(2, 3, dtype=np.int8), ints(2, 3, dtype=np.int64), bools(2, 3), c(2, 3), f(2, 3).astype(np.float16), f(2, 3).astype(np.float64)):
        run("ReverseSequence", [x, i(2, 3)], seq_dim=1)
    refuse("ReverseSequence", [f(2, 3), i(2, 4)], kind="refused", seq_dim=1)
    refuse("ReverseSequence", [f(2, 3), i(-1, 3)], kind="refused", seq_dim=1)


def rows_in_place():
    for op in ("InplaceUpdate", "InplaceAdd", "InplaceSub"):
        run(op, [f(4, 3), i(1, 3), f(2, 3)])
        run(op, [f(4), i(1, 3, 1), f(3)])
        run(op, [f(4, 2), i(-1, 5, 8), f(3, 2)])
        run(op, [f(2, 3), i(), f(0, 3)])
        run(op, [ints(3, 2), i(0, 2), ints(2, 2)])
        run(op, [ints(3, 2, dtype=np.int64), i(0, 0), ints(2, 2, dtype=np.int64)])
        run(op, [f(3, 2).astype(np.float64), i(0, 0), f(2, 2).astype(np.float64)])
        run(op, [f(3, 2).astype(np.float16), i(0, 2), f(2, 2).astype(np.float16)])
    run("InplaceUpdate", [bools(3, 2), i(2), bools(1, 2)])


def together():
    run("ParallelConcat", [[f(1, 3), f(1, 3)]], shape=tf.TensorShape([2, 3]))
    run("ParallelConcat", [[bools(1, 2)]], shape=tf.TensorShape([1, 2]))
    run("ParallelConcat", [[ints(1), ints(1), ints(1)]], shape=tf.TensorShape([3]))


ALONE = [reversed_sequences, rows_in_place, together]
