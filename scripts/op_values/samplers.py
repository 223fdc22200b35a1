"""Classes that are drawn: by logits, and as candidates of sampled losses."""
from .cases import *

KNOWN_OF["Multinomial"] = {"num_samples"}
KNOWN_OF["StatelessMultinomial"] = {"num_samples"}
SEEDS = dict(seed=5, seed2=7)


def by_logits():
    for dtype in (np.float32, np.float64, np.float16, tf.bfloat16.as_numpy_dtype):
        logits = f(3, 5).astype(dtype)
        run("Multinomial", [logits, n(7)], kind="random", **SEEDS)
        run("StatelessMultinomial", [logits, n(6), i(3, -1)], output_dtype=tf.int32)
    run("Multinomial", [f(2, 200), n(33)], kind="random", output_dtype=tf.int32, seed=-1, seed2=1 << 40)
    run("StatelessMultinomial", [f(40, 3), n(2), i(3, 1 << 50, dtype=np.int64)])
    edges = np.array([[np.inf, 0, 1], [-np.inf, 0, -np.inf], [np.nan, 2, 1], [np.inf, np.nan, -np.inf]], np.float32)
    run("StatelessMultinomial", [edges, n(5), i(1, 2)])
    run("StatelessMultinomial", [f(0, 3), n(5), i(1, 2)])
    run("StatelessMultinomial", [f(2, 3), n(0), i(1, 2)])
    refuse("StatelessMultinomial", [f(2, 0), n(3), i(1, 2)])
    refuse("StatelessMultinomial", [f(2, 3), n(-1), i(1, 2)])


def candidates():
    truth = i([3, 7], [1, 2], [0, 11], dtype=np.int64)
    for op in ("Uniform", "LogUniform", "LearnedUnigram", "ThreadUnsafeUnigram"):
        for unique in (False, True):
            for count, most in ((5, 12), (8, 16), (12, 12), (9, 1000)):
                run(f"{op}CandidateSampler", [truth], kind="random", num_true=2, num_sampled=count, unique=unique, range_max=most, **SEEDS)
    run("UniformCandidateSampler", [truth], kind="random", num_true=2, num_sampled=7, unique=True, range_max=3 << 40, **SEEDS)
    run("LogUniformCandidateSampler", [truth], kind="random", num_true=2, num_sampled=60, unique=True, range_max=5000, seed=1, seed2=-2)
    run("AllCandidateSampler", [truth], kind="random", num_true=2, num_sampled=12, unique=True, **SEEDS)
    weights = Floats((1.0, 2.5, 0.5, 0.25, 4.0, 1.0, 3.0))
    small = i([3], [1], [0], dtype=np.int64)
    for attrs in (dict(), dict(distortion=0.75), dict(distortion=0.0)):
        for unique in (False, True):
            run("FixedUnigramCandidateSampler", [small], kind="random", num_true=1, num_sampled=5, unique=unique, range_max=7, unigrams=weights, **attrs, **SEEDS)
    run("FixedUnigramCandidateSampler", [small], kind="random", num_true=1, num_sampled=9, unique=False, range_max=9, unigrams=weights, num_reserved_ids=2, **SEEDS)
    run("FixedUnigramCandidateSampler", [small], kind="random", num_true=1, num_sampled=4, unique=False, range_max=4, unigrams=weights, num_shards=2, **SEEDS)
    run("FixedUnigramCandidateSampler", [i([1]).astype(np.int64)], kind="random", num_true=1, num_sampled=4, unique=False, range_max=3, unigrams=weights, num_reserved_ids=1, num_shards=2, shard=1, **SEEDS)


def hits():
    truth = i([3, 7], [1, 2], [7, 7], dtype=np.int64)
    for sampled in (i(7, 2, 5, 9, dtype=np.int64), i(1, 7, 3, 7, dtype=np.int64), i(8, dtype=np.int64)):
        run("ComputeAccidentalHits", [truth, sampled], num_true=2)
    run("ComputeAccidentalHits", [np.zeros((0, 1), np.int64), i(1, dtype=np.int64)], num_true=1)


def decoders():
    for dtype in (np.float32, np.float64):
        for attrs in (dict(), dict(merge_repeated=True), dict(blank_index=1), dict(blank_index=-2, merge_repeated=True)):
            run("CTCGreedyDecoder", [f(6, 3, 3).astype(dtype), i(6, 2, 0)], **attrs)
    run("CTCGreedyDecoder", [np.zeros((3, 1, 2), np.float32), i(3)])
    refuse("CTCGreedyDecoder", [f(3, 1, 2), i(3)], blank_index=5)


ALONE = [by_logits, candidates, hits, decoders]
