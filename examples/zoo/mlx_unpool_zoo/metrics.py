"""Metrics of segmentation quality."""

from __future__ import annotations

import numpy as np

VOID = 255  # the number of pixels without a class
# Scores for all classes together, and their names.
SCORES = {
    "miou": "mean IoU",
    "boundary_f_score": "boundary F-score",
    "pixel_accuracy": "pixel accuracy",
}


def confusion_matrix(truth: np.ndarray, prediction: np.ndarray, classes: int) -> np.ndarray:
    """Count the pixels by true class (rows) and predicted class (columns).

    Matrices of several batches can be added. Pixels whose true class is not 0 to ``classes - 1``,
    such as 255, are ignored.

    Raises:
        ValueError: If the shapes differ, or another pixel has a predicted class outside this range.
    """
    truth, prediction = np.asarray(truth), np.asarray(prediction)
    counted = (truth >= 0) & (truth < classes)
    if truth.shape != prediction.shape:
        raise ValueError(
            f"'prediction' must have the shape {truth.shape} of 'truth' but got {prediction.shape}."
        )
    rows, columns = truth[counted].astype(np.int64), prediction[counted].astype(np.int64)
    if columns.size and not 0 <= columns.min() <= columns.max() < classes:
        raise ValueError(
            f"'prediction' must be 0 to {classes - 1} but got {columns.min()} to {columns.max()}."
        )
    return np.bincount(rows * classes + columns, minlength=classes**2).reshape(classes, classes)


def iou(counts: np.ndarray) -> np.ndarray:
    """The intersection over union of each class of a confusion matrix; NaN for a class in neither
    map.

    The mean IoU is ``np.nanmean`` of the result.
    """
    both = np.diag(counts)
    either = counts.sum(axis=0) + counts.sum(axis=1) - both
    return np.where(either > 0, both / np.maximum(either, 1), np.nan)


def class_iou(truth: np.ndarray, prediction: np.ndarray, classes: int) -> np.ndarray:
    """The IoU of each class of two class maps; NaN for a class in neither map."""
    return iou(confusion_matrix(truth, prediction, classes))


def boundary_f_score(truth: np.ndarray, prediction: np.ndarray, tolerance: int = 1) -> float:
    """F-score of the boundaries between classes, to within ``tolerance`` pixels.

    The harmonic mean of precision (predicted boundary near a true one) and recall (true boundary
    near a predicted one), over class maps ([N,] H, W); Csurka et al., "What is a good evaluation
    measure for semantic segmentation?", BMVC 2013. Boundaries of pixels with the true class 255
    (void), and within ``tolerance`` of such pixels, are ignored. The result is 1 if there is no
    boundary.
    """
    void = truth == VOID
    counted = ~dilated(void, max(tolerance, 1))
    true_edges, predicted_edges = boundaries(truth) & ~dilated(void, 1), boundaries(prediction)
    near_true, near_predicted = (dilated(e, tolerance) for e in (true_edges, predicted_edges))
    true_edges, predicted_edges = true_edges & counted, predicted_edges & counted
    if not true_edges.any() and not predicted_edges.any():
        return 1.0
    precision = (predicted_edges & near_true).sum() / max(predicted_edges.sum(), 1)
    recall = (true_edges & near_predicted).sum() / max(true_edges.sum(), 1)
    return float(2 * precision * recall / max(precision + recall, 1e-9))


def boundaries(classes: np.ndarray) -> np.ndarray:
    """A mask of the pixels of class maps ([N,] H, W) whose right or lower neighbour has another
    class."""
    edges = np.zeros(classes.shape, bool)
    edges[..., :-1, :] |= classes[..., 1:, :] != classes[..., :-1, :]
    edges[..., :-1] |= classes[..., 1:] != classes[..., :-1]
    return edges


def dilated(mask: np.ndarray, steps: int) -> np.ndarray:
    """A mask ([N,] H, W) and the pixels within this many steps along rows and columns."""
    for _ in range(steps):
        padded = np.pad(mask, [(0, 0)] * (mask.ndim - 2) + [(1, 1), (1, 1)])
        mask = padded[..., :-2, 1:-1] | padded[..., 2:, 1:-1] | padded[..., 1:-1, :-2]
        mask |= padded[..., 1:-1, 2:] | padded[..., 1:-1, 1:-1]
    return mask
