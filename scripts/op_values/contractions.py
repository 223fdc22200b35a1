"""Products and sums of products."""
from .cases import *

HALVES = [np.float16, tf.bfloat16.as_numpy_dtype]


def batches():
    """Batches of matrices that broadcast."""
    pairs = [((2, 3), (5, 3, 4)), ((5, 2, 3), (3, 4)), ((1, 2, 3), (5, 3, 4)), ((5, 2, 3), (1, 3, 4)), ((2, 1, 2, 3), (4, 3, 2)), ((2, 1, 3, 1, 2, 2), (1, 2, 1, 2, 2, 3)), ((4, 1, 3), (1, 3, 1)), ((4, 2, 1), (1, 1, 3)), ((0, 2, 3), (1, 3, 2)), ((3, 0, 2), (1, 2, 2)), ((2, 2, 0), (1, 0, 3)), ((2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 3), (1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 3, 2))]
    for a, b in pairs:
        for op in ["BatchMatMulV2", "BatchMatMulV3"]:
            for x, y in [(False, False), (True, False), (False, True), (True, True)] if len(a) < 6 else [(False, True)]:
                turn = lambda shape, turned: shape[:-2] + (shape[-1], shape[-2]) if turned else shape
                attrs = dict(Tout=tf.float32) if op.endswith("3") else {}
                run(op, [f(*turn(a, x)), f(*turn(b, y))], gradient=len(a) < 7, adj_x=x, adj_y=y, **attrs)
    for dtype in [np.int32, np.int64]:
        run("BatchMatMulV2", [ints(3, 2, 4, dtype=dtype), ints(1, 4, 5, dtype=dtype)])
        run("BatchMatMulV2", [ints(3, 2, 4, dtype=dtype), ints(3, 4, 5, dtype=dtype)])
    run("BatchMatMulV2", [f(3, 2, 4).astype(np.float64), f(4, 5).astype(np.float64)])
    for dtype in HALVES:
        run("BatchMatMulV2", [f(2, 3, 4).astype(dtype), f(4, 5).astype(dtype)])
    run("BatchMatMulV3", [ints(2, 3, 4, low=0, high=100, dtype=np.uint8), ints(1, 4, 2, low=0, high=100, dtype=np.uint8)], Tout=tf.int32)
    refuse("BatchMatMulV2", [f(2, 3, 4), f(3, 4, 5)])


def einsums():
    """Every kind of label: kept by both, by one, summed in both, in one, repeated, unnamed."""
    one = [("ab->ba", (2, 3)), ("ab->a", (2, 3)), ("ab->", (2, 3)), ("abc->ca", (2, 3, 4)), ("aab->ab", (3, 3, 2)), ("aba->b", (3, 2, 3)), ("aa->", (3, 3)), ("a->aa", (3,)), ("ab->baab", (2, 3)), ("aaab->ab", (2, 2, 2, 3)), ("ab->abab", (2, 3)), ("...a->a...", (2, 3, 4)), ("a...b->...ba", (2, 3, 4, 5)), ("...ab->...a", (2, 3, 4)), ("...aa->...a", (2, 3, 3)), ("a...->...", (3, 2)), ("...->...", (2, 3)), ("ab->ab", (0, 3)), ("ab->b", (0, 3)), ("a->a", (1,)), ("->", ()), ("aab->baa", (2, 2, 3)), ("abc->ac", (2, 0, 3)), ("ab...cd->db...", (2, 3, 2, 2, 3))]
    for equation, shape in one:
        both("Einsum", [[f(*shape)]], equation=equation)
    two = [("ab,bc->ac", (2, 3), (3, 4)), ("ab,bc->ca", (2, 3), (3, 4)), ("ba,bc->ac", (3, 2), (3, 4)), ("ab,cb->ac", (2, 3), (4, 3)), ("ab,cb->ca", (2, 3), (4, 3)), ("ba,cb->ca", (3, 2), (4, 3)), ("abc,cde->abde", (2, 3, 4), (4, 2, 3)), ("abcd,cde->abe", (2, 3, 2, 2), (2, 2, 5)), ("abc,acd->abd", (2, 3, 4), (2, 4, 5)), ("aecd,abcd->acbe", (2, 3, 2, 4), (2, 5, 2, 4)), ("acbe,aecd->abcd", (2, 2, 3, 4), (2, 4, 2, 3)), ("abc,cd->abd", (2, 3, 4), (4, 5)), ("abc,dc->abd", (2, 3, 4), (5, 4)), ("bsh,hnd->bnsd", (2, 9, 3), (3, 2, 17)), ("bnsd,bntd->bnst", (2, 2, 3, 4), (2, 2, 5, 4)), ("a,b->ab", (2,), (3,)), ("a,b->ba", (2,), (3,)), ("a,a->", (3,), (3,)), ("a,a->a", (3,), (3,)), ("ab,ab->a", (2, 3), (2, 3)), ("ab,ab->b", (2, 3), (2, 3)), ("ab,a->b", (2, 3), (2,)), ("ab,b->a", (2, 3), (3,)), ("ab,cd->ad", (2, 3), (4, 2)), ("a,b->", (2,), (3,)), ("ab,ac->abc", (2, 3), (2, 4)), ("abc,bad->dca", (2, 3, 4), (3, 2, 5)), ("aab,bc->ac", (2, 2, 3), (3, 4)), ("aab,bc->aac", (2, 2, 3), (3, 2)), ("ab,bb->ab", (2, 3), (3, 3)), ("ab,bc->aca", (2, 3), (3, 2)), (",a->a", (), (3,)), ("abcd,dcbe->ae", (2, 2, 3, 2), (2, 3, 2, 3)), ("abcd,bdce->ae", (2, 2, 3, 2), (2, 2, 3, 3)), ("abcdef,fbde->acf", (2, 2, 2, 2, 2, 3), (3, 2, 2, 2)), ("cab,dab->abcd", (3, 2, 4), (2, 2, 4)), ("aibjckdl,iajbkcmd->abcdijkl", (2, 2, 2, 2, 2, 2, 2, 3), (2, 2, 2, 2, 2, 2, 4, 2)), ("ab,bc->ac", (1, 3), (3, 1)), ("ab,bc->ac", (2, 1), (1, 3)), ("ab,bc->ac", (0, 3), (3, 2)), ("ab,bc->ac", (2, 0), (0, 3)), ("abc,cd->adb", (2, 0, 3), (3, 2)), ("...a,ab->...b", (2, 3, 4), (4, 5)), ("...a,ab->...b", (4,), (4, 5)), ("...ab,...bc->...ac", (2, 1, 2, 3), (4, 3, 2)), ("...ab,...bc->...ac", (2, 3), (4, 3, 2)), ("...ab,...cb->...ac", (5, 2, 3), (1, 4, 3)), ("a...,b...->ab...", (2, 3), (4, 1)), ("...a,...a->...", (3, 2), (1, 2)), ("...a,a->...", (2, 3), (3,)), ("i...j,...j->i", (2, 3), (3,)), ("a...b,b...c->c...a", (2, 3, 1, 4), (4, 2, 3)), ("...,...->...", (2, 1), (3,))]
    for equation, x, y in two:
        both("Einsum", [[f(*x), f(*y)]], equation=equation)
    for equation, x, y in [("ab,bc->ac", (20, 30), (30, 40)), ("aecd,abcd->acbe", (2, 20, 3, 8), (2, 17, 3, 8)), ("acbe,aecd->abcd", (2, 3, 17, 20), (2, 20, 3, 8)), ("abc,cde->adbe", (2, 9, 20), (20, 3, 16)), ("abc,cde->adbe", (2, 9, 20), (20, 3, 4)), ("abc,dc->bda", (3, 17, 9), (18, 9))]:
        run("Einsum", [[f(*x), f(*y)]], equation=equation)
        run("Einsum", [[ints(*x), ints(*y)]], equation=equation)
    for dtype in HALVES + [np.float64]:
        for equation, x, y in [("abc,cde->abde", (2, 3, 4), (4, 2, 3)), ("aecd,abcd->acbe", (2, 3, 2, 4), (2, 5, 2, 4)), ("ab,ab->ab", (2, 3), (2, 3)), ("...ab,bc->...ca", (2, 2, 3), (3, 4))]:
            run("Einsum", [[f(*x).astype(dtype), f(*y).astype(dtype)]], gradient=dtype == np.float64, equation=equation)
        run("Einsum", [[f(2, 3).astype(dtype)]], equation="ab->b")
    run("Einsum", [[ints(2, 3, dtype=np.int64), ints(3, 4, dtype=np.int64)]], equation="ab,bc->ca")
    run("Einsum", [[np.array([[np.nan, np.inf], [-0.0, 0.0]], np.float32), np.array([[1, -1], [0, -0.0]], np.float32)]], equation="ab,bc->ac")
    run("Einsum", [[ints(3, 3)]], equation="aa->a")
    refuse("Einsum", [[f(2, 3), f(4, 5)]], equation="ab,bc->ac")
    refuse("Einsum", [[f(2, 3, 1), f(3, 5)]], equation="ab,bc->ac")
    refuse("Einsum", [[f(2), f(3, 5)]], equation="a...b,bc->a...c")
    refuse("Einsum", [[f(2, 3), f(3)]], equation="...a,a->")
    refuse("Einsum", [[f(2, 3)]], equation="aa->a")


ALONE = [batches, einsums]
