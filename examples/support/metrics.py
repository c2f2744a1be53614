"""Metrics of segmentation quality."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import binary_dilation, generate_binary_structure
from sklearn.metrics import confusion_matrix


def class_iou(truth: np.ndarray, prediction: np.ndarray, classes: int) -> np.ndarray:
    """The intersection over union of each class over all pixels; NaN for a class that does not occur."""
    counts = confusion_matrix(truth.ravel(), prediction.ravel(), labels=np.arange(classes))
    both = np.diag(counts)
    either = counts.sum(axis=0) + counts.sum(axis=1) - both
    return np.where(either > 0, both / np.maximum(either, 1), np.nan)


def boundary_f_score(truth: np.ndarray, prediction: np.ndarray, tolerance: int = 1) -> float:
    """The agreement of boundaries between classes to within ``tolerance`` pixels.

    The harmonic mean of precision (predicted boundary near a true one) and recall (true boundary near a
    predicted one), over scenes (N, H, W); Csurka et al., "What is a good evaluation measure for semantic
    segmentation?", BMVC 2013. The result is 1 if neither has a boundary.
    """
    true_edges, predicted_edges = boundaries(truth), boundaries(prediction)
    if not true_edges.any() and not predicted_edges.any():
        return 1.0
    near = np.zeros((3, 3, 3), bool)
    near[1] = generate_binary_structure(2, 1)  # distances within a scene, not between scenes
    near_true, near_predicted = true_edges, predicted_edges
    for _ in range(tolerance):
        near_true = binary_dilation(near_true, near)
        near_predicted = binary_dilation(near_predicted, near)
    precision = (predicted_edges & near_true).sum() / max(predicted_edges.sum(), 1)
    recall = (true_edges & near_predicted).sum() / max(true_edges.sum(), 1)
    return float(2 * precision * recall / max(precision + recall, 1e-9))


def boundaries(classes: np.ndarray) -> np.ndarray:
    """A mask of the pixels of scenes (N, H, W) whose right or lower neighbour has another class."""
    edges = np.zeros(classes.shape, bool)
    edges[:, :-1] |= classes[:, 1:] != classes[:, :-1]
    edges[:, :, :-1] |= classes[:, :, 1:] != classes[:, :, :-1]
    return edges


def dice(
    truth: np.ndarray, prediction: np.ndarray, class_names: tuple[str, ...]
) -> dict[str, float]:
    """The Dice coefficient (twice the common volume over the sum of both) of every class but the first."""
    found = {}
    for number, name in enumerate(class_names[1:], start=1):
        true, said = truth == number, prediction == number
        found[name] = float(2 * (true & said).sum() / (true.sum() + said.sum()))
    return found


def segmentation_metrics(
    truth: np.ndarray, prediction: np.ndarray, class_names: tuple[str, ...]
) -> dict:
    """All metrics of scenes (N, H, W), in types that JSON supports."""
    iou = class_iou(truth, prediction, len(class_names))
    return {
        "iou": {name: float(value) for name, value in zip(class_names, iou, strict=True)},
        "miou": float(np.nanmean(iou)),
        "boundary_f_score": boundary_f_score(truth, prediction),
        "pixel_accuracy": float((truth == prediction).mean()),
    }
