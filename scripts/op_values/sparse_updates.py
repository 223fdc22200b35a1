"""Updates of rows that indices name, by the optimizers."""
from .cases import *

INDICES = [([4, 3], i(1, 3)), ([5], i(0, 2, 4)), ([3, 2, 2], i(2, 0, dtype=np.int64)), ([4, 2], i(1, 1, 0, 1)), ([2, 3], i())]


def updates():
    kinds = [(np.float32, INDICES), (np.float64, INDICES[:2]), (np.float16, INDICES[:1])]
    for dtype, (shape, indices) in [(dtype, case) for dtype, cases_ in kinds for case in cases_]:
        def x(low=-2.0, high=2.0):
            return f(*shape, low=low, high=high).astype(dtype)

        def g():
            return [f(len(indices), *shape[1:]).astype(dtype), indices]

        def s(*values):
            return [np.array(value, dtype) for value in values]

        positive = dict(low=0.1, high=2)
        apply("ResourceSparseApplyAdadelta", [x(), x(**positive), x(**positive)], [*s(0.1, 0.9, 1e-3), *g()])
        for slots in (True, False):
            apply("ResourceSparseApplyAdagrad", [x(), x(**positive)], [*s(0.1), *g()], update_slots=slots)
            apply("ResourceSparseApplyAdagradV2", [x(), x(**positive)], [*s(0.1, 1e-3), *g()], update_slots=slots)
        apply("ResourceSparseApplyCenteredRMSProp", [x(), x(-0.1, 0.1), x(0.5, 2.0), x()], [*s(0.1, 0.9, 0.8, 1e-3), *g()])
        apply("ResourceSparseApplyRMSProp", [x(), x(**positive), x()], [*s(0.1, 0.9, 0.8, 1e-3), *g()])
        for nesterov in (False, True):
            apply("ResourceSparseApplyMomentum", [x(), x()], [*s(0.1), *g(), *s(0.9)], use_nesterov=nesterov)
            apply("ResourceSparseApplyKerasMomentum", [x(), x()], [*s(0.1), *g(), *s(0.9)], use_nesterov=nesterov)
        for l1 in (0.0, 0.3):
            if dtype != np.float16:
                apply("ResourceSparseApplyProximalGradientDescent", [x()], [*s(0.1, l1, 0.2), *g()])
                apply("ResourceSparseApplyProximalAdagrad", [x(), x(**positive)], [*s(0.1, l1, 0.2), *g()])
                apply("ResourceSparseApplyAdagradDA", [x(), x(), x(**positive)], [*g(), *s(0.1, l1, 0.2), n(3, np.int64)])
            for power in (-0.5, -0.7):
                slots = [x(), x(**positive), x()]
                apply("ResourceSparseApplyFtrl", slots, [*g(), *s(0.1, l1, 0.2, power)])
                apply("ResourceSparseApplyFtrlV2", slots, [*g(), *s(0.1, l1, 0.2, 0.05, power)], multiply_linear_by_lr=power != -0.5)


ALONE = [updates]
