"""Updates of variables by the less common optimizers."""
from .cases import *


def numbers(*values, dtype=np.float32):
    return [np.array(value, dtype) for value in values]


def optimizers():
    for shape, dtype in [((5,), np.float32), ((2, 3), np.float64), ((), np.float32), ((0,), np.float32)]:
        def x(low=-2.0, high=2.0):
            return f(*shape, low=low, high=high).astype(dtype)

        def s(*values):
            return numbers(*values, dtype=dtype)

        positive = dict(low=0.1, high=2)
        apply("ResourceApplyAdadelta", [x(), x(**positive), x(**positive)], [*s(0.1, 0.9, 1e-6), x()])
        apply("ResourceApplyAdaMax", [x(), x(), x(**positive)], [*s(0.9, 0.01, 0.9, 0.99, 1e-7), x()])
        apply("ResourceApplyAdamWithAmsgrad", [x(), x(), x(**positive), x(**positive)], [*s(0.9, 0.99, 0.01, 0.9, 0.99, 1e-7), x()])
        for power in (-0.5, -0.7):
            for by_lr in (False, True):
                for l1 in (0.0, 0.3):
                    slots = [x(), x(**positive), x()]
                    apply("ResourceApplyFtrl", slots, [x(), *s(0.1, l1, 0.2, power)], multiply_linear_by_lr=by_lr)
                    apply("ResourceApplyFtrlV2", slots, [x(), *s(0.1, l1, 0.2, 0.05, power)], multiply_linear_by_lr=by_lr)
        for l1 in (0.0, 0.4):
            apply("ResourceApplyProximalGradientDescent", [x()], [*s(0.1, l1, 0.2), x()])
            apply("ResourceApplyProximalAdagrad", [x(), x(**positive)], [*s(0.1, l1, 0.2), x()])
            apply("ResourceApplyAdagradDA", [x(), x(), x(**positive)], [x(), *s(0.1, l1, 0.2), n(3, np.int64)])
        apply("ResourceApplyAddSign", [x(), x()], [*s(0.1, 1.0, 0.7, 0.9), x()])
        apply("ResourceApplyPowerSign", [x(), x()], [*s(0.1, 1.2, 0.7, 0.9), x()])


ALONE = [optimizers]
