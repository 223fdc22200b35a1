"""What `record_keras_layers.py` records of `keras.layers`: for every class its variants, or why it has none."""
import keras
import numpy as np
from keras import layers

ints = lambda *shape, below=5: np.random.default_rng(sum(shape) + below).integers(0, below, shape).astype(np.int32)


def floats(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def pixels(*shape):
    return np.random.default_rng(sum(shape)).uniform(0, 255, shape).astype(np.float32).round()


class Variant:
    """A layer, made by `make` (a function without arguments), what it is called with and how."""

    def __init__(self, name, make, inputs, gradient=True, saved=False, **call):
        self.name, self.make, self.inputs, self.gradient, self.saved, self.call = name, make, inputs, gradient, saved, call


# Classes that compute nothing by themselves, or nothing that a graph of TensorFlow's could hold.
WITHOUT = {
    "FlaxLayer": "runs Flax modules: a graph of JAX",
    "InputLayer": "a placeholder",
    "InputSpec": "no layer",
    "JaxLayer": "runs functions of JAX",
    "Layer": "the base class",
    "TFSMLayer": "runs a SavedModel: `verify` replays those",
    "TorchModuleWrapper": "runs modules of PyTorch",
    "Wrapper": "the base class of wrappers",
}

X = {1: floats(2, 9, 4), 2: floats(2, 6, 5, 4), 3: floats(1, 4, 5, 3, 2)}


def of(cls, inputs, /, call=None, gradient=True, saved=False, **variants):
    """`default` and the variants of a class: name = keyword arguments of the constructor."""
    inputs = inputs if isinstance(inputs, list) else [inputs]
    default = variants.pop("default", {})
    return [
        Variant(name, lambda kwargs=kwargs: cls(**kwargs), inputs, gradient, saved, **(call or {}))
        for name, kwargs in {"default": default, **variants}.items()
    ]


def convolutions(table):
    for rank in (1, 2, 3):
        x, first = X[rank], {"filters": 3, "kernel_size": 3}
        variants = {
            "same": {**first, "padding": "same", "activation": "relu"},
            "strides": {**first, "strides": 2, "padding": "same", "use_bias": False},
            "dilated": {**first, "kernel_size": 2, "dilation_rate": 2},
        }
        if rank < 3:
            variants["groups"] = {**first, "filters": 4, "groups": 2}
            variants["dilated_same"] = {**first, "padding": "same", "dilation_rate": 2}
        if rank == 1:
            variants["causal"] = {**first, "padding": "causal", "dilation_rate": 2}
        table[f"Conv{rank}D"] = of(getattr(layers, f"Conv{rank}D"), x, default=first, **variants)
        transposed = {name: variants[name] for name in ("same", "strides")}
        transposed["output_padding"] = {**first, "strides": 2, "output_padding": 1}
        if rank < 3:
            transposed["dilated"] = {**first, "dilation_rate": 2}
        table[f"Conv{rank}DTranspose"] = of(getattr(layers, f"Conv{rank}DTranspose"), x, default=first, **transposed)
    table["Conv2D"] += renamed("float16", layers.Conv2D, X[2], {"filters": 3, "kernel_size": 3, "dtype": "mixed_float16"})
    table["Conv2D"] += renamed("bfloat16", layers.Conv2D, X[2], {"filters": 3, "kernel_size": 3, "dtype": "mixed_bfloat16"})
    table["Conv2D"] += renamed("float64", layers.Conv2D, X[2].astype(np.float64), {"filters": 3, "kernel_size": 3, "dtype": "float64"})
    for rank in (1, 2):
        x = X[rank]
        depthwise = {
            "same": {"kernel_size": 3, "padding": "same"},
            "strides": {"kernel_size": 3, "strides": 2, "depth_multiplier": 2},
            "dilated": {"kernel_size": 2, "dilation_rate": 2},
        }
        table[f"DepthwiseConv{rank}D"] = of(getattr(layers, f"DepthwiseConv{rank}D"), x, default={"kernel_size": 3}, **depthwise)
        separable = {name: {"filters": 3, **kwargs} for name, kwargs in depthwise.items()}
        table[f"SeparableConv{rank}D"] = of(getattr(layers, f"SeparableConv{rank}D"), x, default={"filters": 3, "kernel_size": 3}, **separable)


def renamed(name, cls, inputs, kwargs, call=None, gradient=True):
    inputs = inputs if isinstance(inputs, list) else [inputs]
    return [Variant(name, lambda: cls(**kwargs), inputs, gradient, **(call or {}))]


def poolings(table):
    for rank in (1, 2, 3):
        x = X[rank]
        for kind in ("Average", "Max"):
            variants = {
                "default": {"pool_size": 2},
                "same": {"pool_size": 3, "strides": 2, "padding": "same"},
                "overlapping": {"pool_size": 3, "strides": 1},
            }
            table[f"{kind}Pooling{rank}D"] = of(getattr(layers, f"{kind}Pooling{rank}D"), x, **variants)
            table[f"Global{kind}Pooling{rank}D"] = of(getattr(layers, f"Global{kind}Pooling{rank}D"), x, keepdims={"keepdims": True})
            adaptive = {"default": {"output_size": 2}}
            table[f"Adaptive{kind}Pooling{rank}D"] = of(getattr(layers, f"Adaptive{kind}Pooling{rank}D"), x, **adaptive)
        even = floats(2, *[6, 4, 4][:rank], 3)
        table[f"ZeroPadding{rank}D"] = of(getattr(layers, f"ZeroPadding{rank}D"), x, two={"padding": 2})
        table[f"Cropping{rank}D"] = of(getattr(layers, f"Cropping{rank}D"), even)
        table[f"UpSampling{rank}D"] = of(getattr(layers, f"UpSampling{rank}D"), x, **{} if rank == 3 else {"three": {"size": 3}})
        table[f"SpatialDropout{rank}D"] = of(getattr(layers, f"SpatialDropout{rank}D"), x, default={"rate": 0.5}, call={"training": False})
    table["UpSampling2D"] += [v for v in of(layers.UpSampling2D, X[2], bilinear={"interpolation": "bilinear"}, bicubic={"interpolation": "bicubic"}, nearest_1_2={"size": (1, 2)}) if v.name != "default"]
    channels_first = {"data_format": "channels_first"}
    table["GlobalAveragePooling2D"] += renamed("channels_first", layers.GlobalAveragePooling2D, X[2], channels_first)
    table["ZeroPadding2D"] += renamed("channels_first", layers.ZeroPadding2D, X[2], channels_first)


def recurrent(table):
    x = floats(2, 3, 3)
    mask = np.array([[1, 1, 1], [1, 1, 0]], bool)
    for name in ("SimpleRNN", "GRU", "LSTM"):
        cls = getattr(layers, name)
        table[name] = of(
            cls, x, default={"units": 4}, sequences={"units": 4, "return_sequences": True}, states={"units": 4, "return_state": True},
            backwards={"units": 4, "go_backwards": True}, unrolled={"units": 4, "unroll": True, "return_sequences": True},
        )
        # A gradient through a loop is a large graph: one of each kind.
        for variant in table[name]:
            variant.gradient = variant.name == "sequences"
        table[name] += renamed("masked", cls, x, {"units": 4, "return_sequences": True}, {"mask": mask}, name == "LSTM")
        cell = getattr(layers, f"{name}Cell")
        states = [floats(2, 4), floats(4, 2).T.copy()] if name == "LSTM" else floats(2, 4)
        table[f"{name}Cell"] = of(cell, [floats(2, 3), states], default={"units": 4})
    table["GRU"] += renamed("reset_before", layers.GRU, x, {"units": 4, "reset_after": False}, None, False)
    table["RNN"] = [
        Variant("default", lambda: layers.RNN(layers.LSTMCell(4)), [x]),
        Variant("stacked", lambda: layers.RNN([layers.GRUCell(4), layers.LSTMCell(3)], return_sequences=True), [x], gradient=False),
    ]
    table["StackedRNNCells"] = [
        Variant("default", lambda: layers.RNN(layers.StackedRNNCells([layers.GRUCell(4), layers.SimpleRNNCell(3)])), [x], gradient=False),
    ]
    table["Bidirectional"] = [
        Variant("default", lambda: layers.Bidirectional(layers.SimpleRNN(3)), [x]),
        Variant("sequences", lambda: layers.Bidirectional(layers.GRU(3, return_sequences=True), merge_mode="sum"), [x], gradient=False),
        Variant("unrolled", lambda: layers.Bidirectional(layers.LSTM(3, unroll=True)), [x], gradient=False),
    ]
    table["TimeDistributed"] = [
        Variant("default", lambda: layers.TimeDistributed(layers.Dense(4)), [x]),
        Variant("convolution", lambda: layers.TimeDistributed(layers.Conv2D(2, 2)), [floats(2, 3, 4, 4, 2)]),
    ]
    for rank in (1, 2, 3):
        sequence = floats(2, 3, *[4] * rank, 2)
        cls = getattr(layers, f"ConvLSTM{rank}D")
        table[f"ConvLSTM{rank}D"] = of(cls, sequence, default={"filters": 2, "kernel_size": 2}, gradient=rank == 2)
        table[f"ConvLSTM{rank}D"] += renamed("sequences", cls, sequence, {"filters": 2, "kernel_size": 2, "padding": "same", "return_sequences": True}, None, False)


def attention(table):
    query, value = floats(2, 4, 6), floats(2, 5, 6)
    mask = [np.array([[1, 1, 1, 0], [1, 1, 1, 1]], bool), np.array([[1, 1, 0, 0, 1], [1, 1, 1, 1, 1]], bool)]
    for name in ("Attention", "AdditiveAttention"):
        cls = getattr(layers, name)
        table[name] = of(cls, [[query, value]], scaled={"use_scale": True})
        table[name] += renamed("causal", cls, [[query, value]], {}, {"use_causal_mask": True})
        table[name] += renamed("masked", cls, [[query, value]], {}, {"mask": mask})
        table[name] += renamed("scores", cls, [[query, value, floats(5, 2, 6).transpose(1, 0, 2).copy()]], {}, {"return_attention_scores": True})
    table["Attention"] += renamed("concat", layers.Attention, [[query, value]], {"score_mode": "concat"})
    multi = {"num_heads": 2, "key_dim": 3}
    table["MultiHeadAttention"] = of(
        layers.MultiHeadAttention, [query, value], default=multi, value_dim={**multi, "value_dim": 4, "output_shape": 5, "use_bias": False},
    )
    add = lambda name, inputs, kwargs, call: renamed(name, layers.MultiHeadAttention, inputs, kwargs, call)
    table["MultiHeadAttention"] += add("causal", [query, query], multi, {"use_causal_mask": True})
    table["MultiHeadAttention"] += add("masked", [query, value], multi, {"attention_mask": np.tril(np.ones((2, 4, 5), bool))})
    table["MultiHeadAttention"] += add("scores", [query, value], multi, {"return_attention_scores": True})
    table["MultiHeadAttention"] += add("axes", [floats(2, 3, 4, 5), floats(2, 3, 4, 5)], {**multi, "attention_axes": (2,)}, {})
    table["MultiHeadAttention"] += add("float16", [query, value], {**multi, "dtype": "mixed_float16"}, {})
    grouped = {"head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2}
    table["GroupQueryAttention"] = of(layers.GroupQueryAttention, [query, value], default=grouped, plain={**grouped, "use_bias": False})
    table["GroupQueryAttention"] += renamed("causal", layers.GroupQueryAttention, [query, query], grouped, {"use_causal_mask": True})


def normalizations(table):
    x = floats(3, 4, 5, 6)
    table["BatchNormalization"] = of(layers.BatchNormalization, x, plain={"center": False, "scale": False}, axis={"axis": 1})
    table["BatchNormalization"] += renamed("training", layers.BatchNormalization, x, {}, {"training": True})
    table["BatchNormalization"] += renamed("training_rank_2", layers.BatchNormalization, floats(6, 4), {}, {"training": True})
    table["BatchNormalization"] += renamed("training_float16", layers.BatchNormalization, x, {"dtype": "mixed_float16"}, {"training": True})
    table["BatchNormalization"] += renamed("masked", layers.BatchNormalization, floats(3, 5, 4), {}, {"training": True, "mask": np.tril(np.ones((3, 5), bool))})
    table["BatchNormalization"] += renamed("rank_3", layers.BatchNormalization, floats(3, 5, 4), {})
    table["LayerNormalization"] = of(layers.LayerNormalization, floats(3, 5, 4), axes={"axis": [1, 2]}, plain={"center": False, "scale": False}, float16={"dtype": "mixed_float16"})
    table["RMSNormalization"] = of(layers.RMSNormalization, floats(3, 5, 4))
    table["GroupNormalization"] = of(layers.GroupNormalization, x, default={"groups": 3}, instance={"groups": -1})
    table["UnitNormalization"] = of(layers.UnitNormalization, floats(3, 5, 4), axes={"axis": [1, 2]})
    table["SpectralNormalization"] = [
        Variant("default", lambda: layers.SpectralNormalization(layers.Dense(3)), [floats(3, 4)]),
        Variant("training", lambda: layers.SpectralNormalization(layers.Conv2D(3, 2)), [x], training=True),
    ]
    table["Normalization"] = of(layers.Normalization, floats(3, 4), default={"mean": [1.0, 2, 3, 4], "variance": [2.0, 3, 4, 5]}, inverted={"mean": 1.0, "variance": 2.0, "axis": None, "invert": True})


def merging(table):
    a, b, c = floats(2, 3, 4), floats(4, 3, 2).transpose(2, 1, 0).copy(), floats(2, 1, 4)
    for name in ("Add", "Average", "Maximum", "Minimum", "Multiply", "Subtract"):
        cls = getattr(layers, name)
        table[name] = of(cls, [[a, b]])
        table[name] += renamed("broadcast", cls, [[a, c]], {})
    table["Add"] += renamed("three", layers.Add, [[a, b, c]], {})
    table["Concatenate"] = of(layers.Concatenate, [[a, b]], axis={"axis": 1})
    table["Dot"] = of(layers.Dot, [[a, b]], default={"axes": 2}, normalized={"axes": (1, 1), "normalize": True})


def reshaping(table):
    x = floats(2, 3, 4)
    table["Flatten"] = of(layers.Flatten, x, channels_first={"data_format": "channels_first"})
    table["Reshape"] = of(layers.Reshape, x, default={"target_shape": (6, 2)}, open={"target_shape": (-1, 6)})
    table["Permute"] = of(layers.Permute, x, default={"dims": (2, 1)})
    table["RepeatVector"] = of(layers.RepeatVector, floats(2, 3), default={"n": 4})
    table["Identity"] = of(layers.Identity, x)
    table["Lambda"] = [Variant("default", lambda: layers.Lambda(lambda x: keras.ops.square(x) + 1), [x])]
    table["Masking"] = of(layers.Masking, np.where(ints(3, 4, 1) > 1, floats(3, 4, 2), 0).astype(np.float32), default={})
    table["Activation"] = of(layers.Activation, x, default={"activation": "gelu"})
    for activation in (
        "celu elu exponential glu hard_shrink hard_sigmoid hard_silu hard_tanh leaky_relu linear log_sigmoid log_softmax mish relu relu6 "
        "selu sigmoid silu soft_shrink softmax softplus softsign sparse_plus sparse_sigmoid sparsemax squareplus tanh tanh_shrink threshold"
    ).split():
        kwargs = {"activation": activation}
        if activation == "threshold":
            continue
        table["Activation"] += renamed(activation, layers.Activation, 2 * x, kwargs)
    table["ActivityRegularization"] = of(layers.ActivityRegularization, x, default={"l1": 0.1, "l2": 0.2})
    table["ELU"] = of(layers.ELU, x, alpha={"alpha": 0.3})
    table["LeakyReLU"] = of(layers.LeakyReLU, x)
    table["PReLU"] = of(layers.PReLU, x, default={"alpha_initializer": "glorot_uniform"}, shared={"shared_axes": [1], "alpha_initializer": "glorot_uniform"})
    table["ReLU"] = of(layers.ReLU, x, bounded={"max_value": 1.0, "negative_slope": 0.1, "threshold": 0.2})
    table["Softmax"] = of(layers.Softmax, x, axes={"axis": [1, 2]})
    table["Softmax"] += renamed("masked", layers.Softmax, x, {}, {"mask": np.tril(np.ones((2, 3, 4), bool))})
    for name, kwargs in {"Dropout": {"rate": 0.5}, "AlphaDropout": {"rate": 0.5}, "GaussianDropout": {"rate": 0.5}, "GaussianNoise": {"stddev": 0.5}}.items():
        table[name] = of(getattr(layers, name), x, default=kwargs, call={"training": False})


def core(table):
    x = floats(3, 4)
    table["Dense"] = of(
        layers.Dense, x, default={"units": 5}, relu={"units": 5, "activation": "relu", "use_bias": False}, softmax={"units": 5, "activation": "softmax"},
        float16={"units": 5, "dtype": "mixed_float16"}, bfloat16={"units": 5, "dtype": "mixed_bfloat16"}, lora={"units": 5, "lora_rank": 2},
    )
    table["Dense"] += renamed("rank_3", layers.Dense, floats(2, 3, 4), {"units": 5})
    table["Dense"] += renamed("float64", layers.Dense, x.astype(np.float64), {"units": 5, "dtype": "float64"})

    def quantized(name, inputs, make, *modes):
        def layer(mode):
            layer = make()
            layer.build(inputs.shape)
            layer.quantize(mode)
            return layer

        for mode in modes:
            table[name].append(Variant(mode, lambda mode=mode: layer(mode), [inputs], gradient=False))

    quantized("Dense", x, lambda: layers.Dense(5), "int8", "int4")
    table["EinsumDense"] = of(
        layers.EinsumDense, floats(2, 3, 4), default={"equation": "abc,cd->abd", "output_shape": (None, 5), "bias_axes": "d"},
        heads={"equation": "abc,cde->abde", "output_shape": (None, 2, 5), "bias_axes": "de"},
    )
    heads = lambda: layers.EinsumDense("abc,cde->abde", output_shape=(3, 2, 5), bias_axes="de")
    quantized("EinsumDense", floats(2, 3, 4), heads, "int8", "int4")
    table["Embedding"] = of(layers.Embedding, ints(3, 4), default={"input_dim": 5, "output_dim": 3}, masked={"input_dim": 5, "output_dim": 3, "mask_zero": True})
    quantized("Embedding", ints(3, 4), lambda: layers.Embedding(5, 3), "int8", "int4")
    table["ReversibleEmbedding"] = of(layers.ReversibleEmbedding, ints(3, 4), default={"input_dim": 5, "output_dim": 3})
    quantized("ReversibleEmbedding", ints(3, 4), lambda: layers.ReversibleEmbedding(5, 3), "int8")
    table["ReversibleEmbedding"] += renamed("reversed", layers.ReversibleEmbedding, floats(2, 4, 3), {"input_dim": 5, "output_dim": 3}, {"reverse": True})


def preprocessing(table):
    image, still = pixels(2, 6, 8, 3), {"training": False}
    for name in sorted(n for n in dir(layers) if n.startswith("Random")):
        kwargs = {
            "RandomCrop": {"height": 4, "width": 4}, "RandomFlip": {}, "RandomErasing": {}, "RandomElasticTransform": {}, "RandomGaussianBlur": {},
            "RandomTranslation": {"height_factor": 0.2, "width_factor": 0.2}, "RandomZoom": {"height_factor": 0.2}, "RandomShear": {},
            "RandomGrayscale": {}, "RandomPerspective": {}, "RandomInvert": {}, "RandomColorJitter": {}, "RandomPosterization": {"factor": 4},
        }.get(name, {"factor": 0.2})
        table[name] = of(getattr(layers, name), image, default=kwargs, call=still, gradient=False)
    for name in ("AugMix", "AutoContrast", "RandAugment"):
        table[name] = of(getattr(layers, name), image, call=still, gradient=False)
    for name in ("CutMix", "MixUp"):
        table[name] = of(getattr(layers, name), [{"images": image, "labels": floats(2, 3)}], call=still, gradient=False)
    table["ContrastLimitedAdaptiveHistogramEqualization"] = of(layers.ContrastLimitedAdaptiveHistogramEqualization, pixels(1, 16, 16, 3), default={"tile_grid_size": (2, 2)}, gradient=False)
    table["Equalization"] = of(layers.Equalization, image, gradient=False)
    table["Solarization"] = of(layers.Solarization, image, default={"threshold_factor": (0.5, 0.5), "addition_factor": 0.0}, call=still, gradient=False)
    table["CenterCrop"] = of(layers.CenterCrop, image, default={"height": 4, "width": 5}, larger={"height": 9, "width": 12})
    table["Rescaling"] = of(layers.Rescaling, image, default={"scale": 1 / 127.5, "offset": -1.0})
    table["Resizing"] = of(
        layers.Resizing, image, default={"height": 4, "width": 10}, nearest={"height": 4, "width": 10, "interpolation": "nearest"},
        bicubic={"height": 9, "width": 10, "interpolation": "bicubic"}, lanczos={"height": 4, "width": 10, "interpolation": "lanczos3"},
        area={"height": 3, "width": 4, "interpolation": "area"}, lanczos5={"height": 9, "width": 10, "interpolation": "lanczos5"},
        crop={"height": 5, "width": 5, "crop_to_aspect_ratio": True}, pad={"height": 5, "width": 5, "pad_to_aspect_ratio": True}, gradient=False,
    )
    table["MaxNumBoundingBoxes"] = of(layers.MaxNumBoundingBoxes, [{"images": image, "bounding_boxes": {"boxes": floats(2, 3, 4), "labels": ints(2, 3)}}], default={"max_number": 4, "bounding_box_format": "xyxy"}, gradient=False)
    table["Pipeline"] = [Variant("default", lambda: layers.Pipeline([layers.Rescaling(0.5), layers.CenterCrop(4, 4)]), [image], gradient=False)]
    table["CategoryEncoding"] = of(
        layers.CategoryEncoding, ints(3, 4), default={"num_tokens": 5}, one_hot={"num_tokens": 5, "output_mode": "one_hot"},
        count={"num_tokens": 5, "output_mode": "count"}, gradient=False,
    )
    table["Discretization"] = of(
        layers.Discretization, floats(3, 4), default={"bin_boundaries": [-1.0, 0.0, 0.5]}, one_hot={"bin_boundaries": [-1.0, 0.0, 0.5], "output_mode": "one_hot"},
        multi_hot={"bin_boundaries": [-1.0, 0.0, 0.5], "output_mode": "multi_hot"}, gradient=False,
    )
    wave = floats(2, 700)
    table["STFTSpectrogram"] = of(layers.STFTSpectrogram, floats(2, 64, 1), default={"frame_length": 16, "frame_step": 8, "fft_length": 16}, log={"frame_length": 16, "frame_step": 8, "fft_length": 16, "mode": "log"})
    table["MelSpectrogram"] = of(layers.MelSpectrogram, wave, default={"num_mel_bins": 8, "sampling_rate": 800, "sequence_stride": 64, "fft_length": 128})
    words = np.array([["a", "b"], ["zzz", "c"]], object)
    table["HashedCrossing"] = of(layers.HashedCrossing, [[ints(3, 1), ints(4, 1)[:3]]], default={"num_bins": 5}, gradient=False)
    table["Hashing"] = of(layers.Hashing, ints(3, 4), default={"num_bins": 5}, salted={"num_bins": 5, "salt": 7}, gradient=False)
    table["Hashing"] += [Variant("strings", lambda: layers.Hashing(num_bins=5), [words], gradient=False)]
    table["IntegerLookup"] = of(layers.IntegerLookup, ints(3, 4).astype(np.int64), default={"vocabulary": [1, 3, 4]}, one_hot={"vocabulary": [0, 1, 2, 3, 4], "output_mode": "multi_hot"}, gradient=False, saved=True)
    table["StringLookup"] = of(layers.StringLookup, words, default={"vocabulary": ["a", "b", "c"]}, gradient=False, saved=True)
    text = np.array([["The cat sat."], ["a CAT, a hat"]], object)
    table["TextVectorization"] = of(layers.TextVectorization, text, default={"vocabulary": ["cat", "hat", "the"], "output_sequence_length": 5}, gradient=False, saved=True)


def table():
    """Variants by class."""
    result = {}
    for part in (core, convolutions, poolings, recurrent, attention, normalizations, merging, reshaping, preprocessing):
        part(result)
    return result
