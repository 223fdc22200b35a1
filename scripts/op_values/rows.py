"""Rows of a tensor that are taken or left together."""
import numpy as np

from .cases import *


def conditions_of_rows():
    condition = np.array([True, False, True])
    both("Select", [condition, f(3, 2), f(3, 2)])
    both("Select", [condition, f(3, 2, 2), f(3, 2, 2)])
    run("Select", [condition, ints(3, 4), ints(3, 4)])
    run("Select", [condition[:0], f(0, 2), f(0, 2)])


ALONE = [conditions_of_rows]
