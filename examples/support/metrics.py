from mlx_unpool_zoo.metrics import boundary_f_score, class_iou, dice, segmentation_metrics  # noqa: F401
