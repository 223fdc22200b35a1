"""Boxes drawn over images."""
from .cases import *

BOXES = [
    [0.1, 0.2, 0.7, 0.9], [0.5, 0.0, 1.0, 0.4], [-0.3, -0.5, 0.4, 0.3], [0.6, 0.6, 1.7, 1.9], [-1.0, -1.0, 2.0, 2.0],
    [0.8, 0.1, 0.2, 0.9], [1.5, 0.1, 1.9, 0.9], [-0.9, 0.1, -0.6, 0.9], [0.4, 0.4, 0.4, 0.4], [-0.05, -0.05, 0.3, 0.3], [0.0, 0.3, 0.9, 0.5],
    [0.2, 0.8, 0.3, 1.05],
]


def drawn():
    boxes = np.array(BOXES, np.float32)
    two = np.stack([boxes, boxes[::-1]])
    for depth in (1, 3, 4):
        run("DrawBoundingBoxes", [f(2, 9, 11, depth, low=0, high=0.9), two])
        for box in boxes:
            run("DrawBoundingBoxes", [np.zeros((1, 7, 8, depth), np.float32), box.reshape(1, 1, 4)])
        run("DrawBoundingBoxesV2", [f(2, 9, 11, depth, low=0, high=0.9), two, f(5, depth + 1)])
        run("DrawBoundingBoxesV2", [f(2, 6, 7, depth, low=0, high=0.9), two, np.zeros((0, 4), np.float32)])
    run("DrawBoundingBoxesV2", [f(2, 6, 7, 3, low=0, high=0.9).astype(np.float16), two, f(2, 3)])
    run("DrawBoundingBoxes", [f(2, 6, 7, 3).astype(np.float16), two])
    run("DrawBoundingBoxes", [f(1, 1, 1, 1), two[:1]])
    run("DrawBoundingBoxes", [f(2, 4, 5, 3), two[:, :0]])
    run("DrawBoundingBoxes", [f(2, 0, 5, 3), two])


def refusals():
    one = np.zeros((1, 2, 4), np.float32)
    refuse("DrawBoundingBoxes", [f(1, 3, 4, 2), one], kind="refused")
    refuse("DrawBoundingBoxes", [f(2, 3, 4, 3), one], kind="refused")
    refuse("DrawBoundingBoxes", [f(1, 3, 4, 3), one[:, :, :3]], kind="refused")
    refuse("DrawBoundingBoxesV2", [f(1, 3, 4, 3), one, f(2, 2)], kind="refused")


ALONE = [drawn, refusals]
