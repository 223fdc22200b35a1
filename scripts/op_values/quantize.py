"""Numbers rounded to the levels of a range, in place of quantized ones."""
from .cases import *

KNOWN_OF["QuantizeAndDequantizeV3"] = {"num_bits"}
EDGES = np.array([-7, -1.3, -0.5, -0.01, -0.0, 0.0, 0.004, 0.2, 0.5, 1.1, 2.5, np.inf, -np.inf, np.nan], np.float32)


def ends(low, high, dtype=np.float32):
    return [np.array(low, dtype), np.array(high, dtype)]


def in_range():
    for dtype in (np.float32, np.float64):
        for low, high in [(-1.0, 1.0), (-0.5, 2.0), (-2.0, 0.25), (0.5, 2.0), (0.0, 0.0)]:
            run("QuantizeAndDequantizeV2", [EDGES.astype(dtype), *ends(low, high, dtype)], range_given=True, T=tf.as_dtype(dtype))
    for signed in (True, False):
        for bits in (1, 3, 8, 16, 24, 61):
            for narrow in (True, False):
                if signed and narrow and bits == 1:
                    continue
                attrs = dict(signed_input=signed, num_bits=bits, narrow_range=narrow, range_given=True)
                run("QuantizeAndDequantizeV2", [f(7), *ends(-1.2, 1.7)], **attrs)
    for mode in ("HALF_UP", "HALF_TO_EVEN"):
        halves = np.arange(-10, 11).astype(np.float32) / 2
        run("QuantizeAndDequantizeV2", [halves, *ends(-4.0, 3.0)], num_bits=3, range_given=True, round_mode=mode)
        run("QuantizeAndDequantizeV4", [halves, *ends(-4.0, 3.0)], num_bits=3, range_given=True, round_mode=mode)
    refuse("QuantizeAndDequantizeV2", [f(3), *ends(1.0, -1.0)], kind="refused", range_given=True)
    refuse("QuantizeAndDequantizeV4", [f(3), *ends(1.0, -1.0)], kind="refused", range_given=True)
    refuse("QuantizeAndDequantizeV2", [f(3), *ends(-1.0, 1.0)], num_bits=62, range_given=True)
    refuse("QuantizeAndDequantizeV2", [f(3), *ends(-1.0, 1.0)], num_bits=63, signed_input=False, range_given=True)
    refuse("QuantizeAndDequantizeV3", [f(3), *ends(-1.0, 1.0), n(0)])


def of_the_numbers():
    for dtype in (np.float32, np.float64):
        run("QuantizeAndDequantizeV2", [f(3, 4).astype(dtype), *ends(0, 0, dtype)], T=tf.as_dtype(dtype))
        run("QuantizeAndDequantizeV2", [f(3, 4, low=0.1).astype(dtype), *ends(0, 0, dtype)], T=tf.as_dtype(dtype), num_bits=4)
    for attrs in (dict(signed_input=False), dict(narrow_range=True), dict(num_bits=5, signed_input=False)):
        run("QuantizeAndDequantizeV2", [f(3, 4), *ends(0, 0)], **attrs)
        run("QuantizeAndDequantizeV2", [f(5, low=-3, high=-1), *ends(0, 0)], **attrs)
    run("QuantizeAndDequantizeV2", [np.zeros(3, np.float32), *ends(0, 0)])
    run("QuantizeAndDequantizeV2", [f(0, 3), *ends(0, 0)])


def by_channel():
    both("QuantizeAndDequantizeV2", [f(3, 4), f(4), f(4)], axis=1)
    both("QuantizeAndDequantizeV4", [f(2, 4, 3), f(4), f(4)], axis=1, signed_input=False)
    # TensorFlow's other versions refuse ranges of channels.
    low, high = f(4, low=-2, high=-0.1), f(4, low=0.1, high=2)
    run("QuantizeAndDequantizeV3", [f(2, 4, 3), low, high, n(8)], axis=1, range_given=True, narrow_range=True)
    run("QuantizeAndDequantizeV3", [f(4, 3), low, high, n(4)], axis=0, range_given=True)
    both("QuantizeAndDequantizeV3", [f(2, 4), low, high, n(6)], axis=1, range_given=True)
    run("QuantizeAndDequantizeV4Grad", [f(2, 4), f(2, 4), low, high], axis=1)


def gradients():
    both("QuantizeAndDequantizeV2", [f(3, 4), *ends(-1.0, 1.0)], range_given=True)
    both("QuantizeAndDequantizeV2", [f(3, 4), *ends(0, 0)])
    both("QuantizeAndDequantizeV3", [f(3, 4), *ends(-1.0, 1.0), n(8)], range_given=True)
    run("QuantizeAndDequantizeV3", [f(3, 4), *ends(0, 0), n(4)], signed_input=False, range_given=False)
    both("QuantizeAndDequantizeV4", [f(3, 4), *ends(-1.0, 1.0)], range_given=True)
    for dtype in (np.float32, np.float64):
        grad = f(*EDGES.shape).astype(dtype)
        run("QuantizeAndDequantizeV4Grad", [grad, EDGES.astype(dtype), *ends(-0.5, 1.1, dtype)], T=tf.as_dtype(dtype))


ALONE = [in_range, of_the_numbers, by_channel, gradients]
