"""Preprocessing and prediction with the models of the zoo, class tables, and their layers."""

import doctest

import mlx.core as mx
import mlx_unpool_zoo as zoo
import numpy as np
import pytest
import scipy.ndimage
import sklearn.metrics
from helpers.small_models import small_model
from mlx.utils import tree_flatten
from mlx_unpool_zoo.layers import BatchNorm
from PIL import Image

from mlx_unpool.porting import to_state_dict

EXAMPLES = {"zoo": zoo, "mx": mx, "np": np}
PICTURE = np.random.default_rng(0).integers(0, 256, (43, 50, 3)).astype(np.uint8)


def test_a_prediction_has_the_size_of_the_image():
    model, _ = small_model("enet")
    classes = model.predict(Image.fromarray(PICTURE))
    assert (classes.shape, classes.dtype) == ((43, 50), np.uint8)
    padded = np.pad(PICTURE, [(0, 5), (0, 6), (0, 0)], mode="edge")
    expected = mx.argmax(model(mx.array(padded[None].astype(np.float32))), axis=-1)
    assert np.array_equal(classes, np.array(expected)[0, :43, :50])
    rgba = Image.fromarray(PICTURE).convert("RGBA")
    for same in (PICTURE, PICTURE / 255, mx.array(PICTURE / 255), rgba):
        assert (model.predict(same) == classes).mean() > 0.99
    for batch in (np.stack([PICTURE] * 2), [PICTURE] * 2, [Image.fromarray(PICTURE)] * 2):
        assert np.array_equal(model.predict(batch), [classes, classes])


def test_probabilities_are_the_softmax_of_the_scores_on_the_grid_of_the_image():
    model, _ = small_model("enet")
    found = model.probabilities(PICTURE)
    assert (found.shape, found.dtype) == ((43, 50, model.config["num_classes"]), np.float32)
    scores = model(model.preprocess(PICTURE))[0, :43, :50]
    assert np.allclose(found, mx.softmax(scores, axis=-1), atol=1e-6)
    assert np.array_equal(found.argmax(axis=-1), model.predict(PICTURE))
    assert np.array_equal(model.probabilities([PICTURE] * 2), [found, found])
    small = model.probabilities(np.asarray(Image.fromarray(PICTURE).resize((23, 20))))
    model.about.input["side"] = 20
    rows, columns = np.mgrid[:43, :50] + 0.5
    places = rows * 20 / 43 - 0.5, columns * 23 / 50 - 0.5
    for number, plane in enumerate(np.moveaxis(small, -1, 0)):
        expected = scipy.ndimage.map_coordinates(plane, places, order=1, mode="nearest")
        assert np.allclose(model.probabilities(PICTURE)[..., number], expected, atol=1e-5)
    hair, _ = small_model("hair")
    both = hair.probabilities(PICTURE)
    assert np.array_equal(both[..., 1], hair.mask(PICTURE))
    assert np.allclose(both.sum(axis=-1), 1)


@pytest.mark.parametrize("kind", zoo.MODELS)
def test_the_example_of_every_model_runs(kind):
    model = zoo.MODELS[kind]
    (example,) = doctest.DocTestFinder(recurse=False).find(model, globs=EXAMPLES)
    assert len(example.examples) >= 2
    assert doctest.DocTestRunner().run(example).failed == 0


def test_the_input_is_normalised_and_has_the_type_of_the_model():
    segnet, quicknat = (small_model(name)[0] for name in ("segnet", "quicknat"))
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    inputs = np.array(segnet.preprocess(PICTURE))[0]
    assert np.allclose(inputs, (PICTURE / 255 - mean) / std, atol=1e-6)
    assert np.allclose(segnet.preprocess(PICTURE / 255)[0], inputs, atol=1e-5)
    assert np.array_equal(
        quicknat.preprocess(np.full((4, 4), 255, np.uint8)), np.ones((1, 4, 4, 1))
    )
    quicknat.set_dtype(mx.bfloat16)
    assert quicknat.preprocess(np.zeros((4, 4))).dtype == mx.bfloat16
    assert small_model("enet")[0].preprocess(PICTURE).shape == (1, 48, 56, 3)
    model = zoo.SegNet(3, (4,), (1,), inputs=1, dims=1)
    signal = np.random.default_rng(0).normal(size=50)
    # not scaled
    assert np.array_equal(model.preprocess(signal)[0, :, 0], signal.astype(np.float32))
    assert model.predict(signal).shape == (50,)
    assert model.predict(np.stack([signal] * 2)).shape == (2, 50)


@pytest.mark.parametrize("kind", ["fastsurfer_cnn", "hypvinn", "quicknat"])
def test_slices_of_a_volume_have_their_neighbours_as_channels(kind):
    model, x = small_model(kind)
    shape = 5, 32, 48, model.facts.modalities
    volume = np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8)
    half = x.shape[-1] // model.facts.modalities // 2
    places = np.clip(np.arange(5)[:, None] + np.arange(-half, half + 1), 0, 4)
    parts = [np.moveaxis(volume[places, ..., n], 1, -1) for n in range(model.facts.modalities)]
    slices = np.concatenate(parts, -1)
    volume = volume[..., 0] if model.facts.modalities == 1 else volume
    assert np.array_equal(model.preprocess(volume), slices / np.float32(255))
    classes = model.predict(volume)
    assert np.array_equal(classes, model.predict(slices))
    assert np.array_equal(classes[2], model.predict(slices[2]))


GREY, CLEAR = (PICTURE[:32, :48, :1].repeat(n, axis=-1) for n in (3, 4))
OPAQUE = np.concatenate([GREY, np.full((32, 48, 1), 255, np.uint8)], axis=-1)


@pytest.mark.parametrize(
    "kind", ["relaynet", "quicknat", "fastsurfer_cnn", "cerebnet", "fastsurfer_vinn"]
)
def test_pictures_with_equal_channels_are_grey(kind):
    model, slices = small_model(kind)[0], np.stack([GREY[..., 0]] * 5)
    expected = model.preprocess(slices)
    for given in (GREY, OPAQUE, GREY / 255, OPAQUE / 255):
        assert np.allclose(model.preprocess(np.stack([given] * 5)), expected, atol=1e-6)
    assert np.array_equal(model.preprocess([Image.fromarray(GREY)] * 5), expected)
    if model.channels == 1:
        assert np.array_equal(model.predict(OPAQUE), model.predict(GREY[..., 0]))
    assert model.preprocess(slices[..., :4, None]).shape[:2] == (5, 32)  # slices with rows of four


@pytest.mark.parametrize("kind", ["relaynet", "quicknat", "fastsurfer_cnn", "hypvinn"])
def test_colours_and_transparency_are_refused_by_networks_for_grey_scans(kind):
    model, coloured = small_model(kind)[0], PICTURE[:32, :48]
    says = (
        r"'images' must be grey, but got .* shape \(.*, [34]\)\. "
        r"Pass values\[\.\.\., None\] if these are"
    )
    for given in (coloured, CLEAR, np.stack([CLEAR] * 5), coloured / 255):
        with pytest.raises(ValueError, match=says):
            model.predict(given)


def test_predict_leaves_the_mode_of_every_layer(monkeypatch):
    model, _ = small_model("enet")
    expected = model.predict(PICTURE)
    model.train()
    model.modules()[1].eval()
    modes = [module.training for module in model.modules()]
    original, during = type(model).__call__, []

    def call(self, x):
        during.append((self.training, [module.training for module in model.modules()]))
        return original(self, x)

    monkeypatch.setattr(type(model), "__call__", call)
    assert np.array_equal(model.predict(PICTURE), expected)
    assert during == [(False, modes)]  # as other threads that use the model see it


BAD = {
    "int64": PICTURE.astype(np.int64),
    "float64 from 0.0 to 2": np.full((8, 8, 3), 2.0) * (PICTURE[:8, :8] > 128),
    "float64 from nan": np.full((8, 8, 3), np.nan),
    "bool": PICTURE > 0,
    r"the shape \(1, 43, 50, 4\)": np.zeros((43, 50, 4), np.uint8),
    r"the shape \(0, 8, 8, 3\)": np.zeros((0, 8, 8, 3), np.uint8),
}


def test_images_that_are_refused():
    model = small_model("enet")[0]
    for says, images in BAD.items():
        says += r'.*\. Pass a Pillow image, or its .convert\("RGB"\).$'
        with pytest.raises(
            ValueError, match=rf"^\[ENet\] 'images' must be .*H, W, 3.* but got .*{says}"
        ):
            model.predict(images)
    for images in ([PICTURE, PICTURE[:8]], []):
        with pytest.raises(
            ValueError, match=r"^'images' must be one or more images of the same shape"
        ):
            model.predict(images)
    grey = Image.fromarray(np.full((16, 24), 300, np.uint16))  # 65535 is white by default
    assert np.array_equal(model.predict(grey), model.predict(np.ones((16, 24, 3), np.uint8)))


def test_what_a_model_does_not_accept():
    quicknat = small_model("quicknat")[0]
    with pytest.raises(ValueError, match=r"or a volume, .* but got the shape \(2, 1\)"):
        quicknat.predict(np.zeros(2, np.uint8))
    for nothing in (None, [None], (False, None)):  # of cv2.imread and of a camera
        with pytest.raises(TypeError, match="got None: the file was not read"):
            quicknat.predict(nothing)
    with pytest.raises(TypeError, match=r"not a path: use PIL.Image.open\('street.png'\)"):
        quicknat.predict("street.png")
    says = r"'classes.0.colour': Field required; 'classes.1.colour': .*; ... and 30 more$"
    with pytest.raises(ValueError, match=rf"^\[About\] {says}"):
        quicknat.about.classes = [{"name": "sky"}] * 33
    quicknat.about.input["normalisation"]["mean"] = []
    for refused in (quicknat.predict, quicknat.save_pretrained):
        with pytest.raises(ValueError, match="'mean' must have 1 entries but got 0"):
            refused(np.zeros((4, 4), np.uint8))


def test_the_classes_of_the_authors():
    for model, count, names in (
        (zoo.FastSurferVINN, 79, {1: "Left-Cerebral-White-Matter", 78: "ctx-rh-superiorfrontal"}),
        (zoo.FastSurferCNN, 51, {1: "3rd-Ventricle", 50: "ctx-lh-insula"}),
        (zoo.CerebNet, 28, {0: "Unknown", 1: "Left_I_IV", 27: "Right_Corpus_Medullare"}),
        # sagittal
        (zoo.CerebNet, 17, {1: "I_IV", 4: "Vermis_VI", 12: "IX", 16: "Corpus_Medullare"}),
    ):
        classes = model(count, num_filters=2).about.classes
        assert (len(classes), {n: classes[n]["name"] for n in names}) == (count, names)
    assert zoo.CEREBNET[28][8] == {"name": "Left_CrusI", "colour": [230, 148, 34], "label": 8}
    assert zoo.HypVINN(79, num_filters=2, num_filters_interpol=2).about.classes == []
    for model in (zoo.ENet(12), zoo.SegNet(12)):
        again = zoo.from_pytorch(model.model_type, to_state_dict(model, model.pytorch_names))
        assert (model.about.classes, again.about.classes) == ([], zoo.CAMVID)


def test_statistics_stay_frozen():
    """As with mlx.nn.BatchNorm alone: AdamW would let them decay."""
    model, _ = small_model("enet")
    for part in (model, model.stage4[1]):
        part.freeze().unfreeze()
        names = " ".join(name for name, _ in tree_flatten(model.trainable_parameters()))
        assert ("weight" in names, "running_" in names) == (True, False)


def test_the_metrics_are_those_of_scikit_learn_and_scipy():
    random = np.random.default_rng(0)
    truth, prediction = random.integers(0, 5, (2, 3, 20, 30))
    ignoring = np.where(
        random.random(truth.shape) < 0.2, random.choice([5, 255], truth.shape), truth
    )
    flat = ignoring.ravel(), prediction.ravel()
    expected = sklearn.metrics.confusion_matrix(*flat, labels=range(5))
    counts = zoo.metrics.confusion_matrix(ignoring.astype(np.uint8), prediction, 5)
    assert np.array_equal(counts, expected)
    ious = sklearn.metrics.jaccard_score(truth.ravel(), prediction.ravel(), average=None)
    assert np.allclose(zoo.metrics.class_iou(truth, prediction, 6), [*ious, np.nan], equal_nan=True)
    mask, cross = truth == 4, np.zeros((3, 3, 3), bool)
    cross[1] = scipy.ndimage.generate_binary_structure(2, 1)
    grown = scipy.ndimage.binary_dilation(mask, cross, iterations=2)
    assert np.array_equal(zoo.metrics.dilated(mask, 2), grown)
    one, several = (zoo.metrics.boundary_f_score(truth[n], prediction[n], 0) for n in (0, slice(1)))
    assert 0 < one == several < 1
    for wrong, says in (
        (prediction[:1], "must have the shape"),
        (prediction + 2, "must be 0 to 4"),
    ):
        with pytest.raises(ValueError, match=f"'prediction' {says}"):
            zoo.metrics.confusion_matrix(truth, wrong, 5)


def test_void_and_outlines_near_it_do_not_count_in_the_metrics():
    truth = np.repeat([[0] * 9 + [1] * 3], 9, axis=0)
    plain, predictions = truth.copy(), np.stack([truth] * 3)
    for count, prediction in enumerate(predictions, start=1):
        # a line whose end is near void, or not
        prediction[3, 3 : 3 + count] = 1
    truth[3, 3] = 255
    same, near, far = (zoo.metrics.boundary_f_score(truth, row, 2) for row in predictions)
    assert same == near == 1 > far
    assert (
        zoo.metrics.boundary_f_score(np.where(truth == 255, truth, predictions[1]), plain, 2) == 1
    )


@pytest.mark.parametrize("shape", [(2, 79, 172, 16), (3, 5000, 4), (2, 3, 5, 4, 4), (6, 8)])
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_is_as_accurate_as_that_of_pytorch(shape, training):
    x = np.random.default_rng(0).normal(1, 2, shape).astype(np.float32)
    norm = BatchNorm(shape[-1]).train(training)
    axes, wide = tuple(range(len(shape) - 1)), x.astype(float)
    normalised, mean, var = np.array(norm(mx.array(x))), wide.mean(axes), wide.var(axes)
    exact = (wide - mean) / np.sqrt(var + 1e-5) if training else wide / np.sqrt(1 + 1e-5)
    assert np.abs(normalised - exact).max() < 1.5e-6
    if training:
        count = wide.size / shape[-1]
        assert np.allclose(norm.running_mean, 0.1 * mean, rtol=1e-6, atol=1e-8)
        assert np.allclose(norm.running_var, 0.9 + 0.1 * var * count / (count - 1), rtol=1e-6)
    norm.set_dtype(mx.float16)
    # the sum of the squares would overflow
    half = norm.train()(mx.array(100 * x).astype(mx.float16))
    assert half.dtype == mx.float16
    assert np.abs(np.array(half) - (wide - mean) / np.sqrt(var)).max() < 0.02
