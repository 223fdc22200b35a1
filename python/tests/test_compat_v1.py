"""`plimsoll.compat.v1`: the programs of TensorFlow 1's chapters on devices and memory, and what they are made of."""

import glob
import importlib.util
import os
import re
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import PACKAGE

np = pytest.importorskip("numpy")
pytest.importorskip("plimsoll._native", reason="the native module is not built", exc_type=ImportError)

import plimsoll  # noqa: E402
import plimsoll.compat.v1 as tf  # noqa: E402
from plimsoll import config, errors  # noqa: E402
from plimsoll.compat.v1 import _math, _op, nn  # noqa: E402
from plimsoll.config import _context  # noqa: E402

TESTS = Path(__file__).resolve().parent
CIFAR = TESTS / "programs" / "cifar10_towers.py"


@pytest.fixture(autouse=True)
def cards(tmp_path, monkeypatch):
    monkeypatch.setenv("PLIMSOLL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PLIMSOLL_NVML", "")
    monkeypatch.setenv("PLIMSOLL_SIM_GPUS", "2x64MiB")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    _context.reset()
    with tf.Graph().as_default():
        yield
    _context.reset()


def program(path):
    """A program's module, with its flags as they are without a command line."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    tf.app.flags.FLAGS.__init__()
    spec.loader.exec_module(module)
    module.FLAGS(["program"])
    return module


def test_towers_train_on_two_cards(tmp_path):
    folder = tmp_path / "train"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    command = [sys.executable, str(CIFAR), f"--train_dir={folder}", "--log_device_placement", "--max_steps", "51", "--fraction", "0.5"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"loss = ([\d.]+)", done.stdout)]
    assert len(losses) == 6 and min(losses) < losses[0] - 0.5, losses
    placed = dict(re.findall(r"^(\S+): \(\w+\): (\S+)$", done.stdout, re.M))
    device = "/job:localhost/replica:0/task:0/device:"
    for tower in (0, 1):
        assert placed[f"tower_{tower}/conv1/Conv2D"] == placed[f"tower_{tower}/local3/MatMul"] == f"{device}GPU:{tower}"
        assert placed[f"tower_{tower}/gradients/tower_{tower}/conv2/Conv2D_grad/Conv2DBackpropFilter"] == f"{device}GPU:{tower}"
    assert placed["conv1/weights"] == placed["GradientDescent"] == placed["conv1/weights/ExponentialMovingAverage"] == f"{device}CPU:0"
    assert "GPU:1 -> device: 1, name: Simulated GPU" in done.stderr
    assert {path.name for path in folder.glob("model*")} == {f"model.ckpt-50.{end}" for end in ("index", "meta", "data-00000-of-00001")}
    # What was written is a checkpoint and a graph that others read.
    assert ("conv1/weights", [5, 5, 3, 16]) in tf.train.list_variables(str(folder))
    with plimsoll.Session(folder / "model.ckpt-50.meta") as session:
        session.restore(folder)
        assert session.run("conv1/weights/read:0").shape == (5, 5, 3, 16)
    tags = [tag for event in events(folder) for tag in re.findall(rb"learning_rate|tower_1/conv1/conv1/conv1/activations", event)]
    assert len(set(tags)) == 2


def test_towers_stay_inside_their_limits(tmp_path):
    module = program(CIFAR)
    images, labels, train_op, total_loss, _, _ = module.build()
    init = tf.global_variables_initializer()
    random = np.random.default_rng(1)
    feed = {}
    for i in range(2):
        feed[images[i]], feed[labels[i]] = module.batch(random)

    def options(mebibytes):
        made = tf.ConfigProto(allow_soft_placement=True)
        for _ in range(2):
            made.gpu_options.experimental.virtual_devices.add(memory_limit_mb=[mebibytes])
        return made

    with tf.Session(config=options(16)) as sess:
        sess.run(init)
        plan = sess.plan([train_op, total_loss], feed)
        assert plan.fits
        peaks = {device["name"][-5:]: device["peak_bytes"] for device in plan.to_dict()["devices"]}
        losses = [sess.run([train_op, total_loss], feed)[1] for _ in range(4)]
        assert losses[-1] < losses[0]
        for gpu in ("GPU:0", "GPU:1"):
            assert 1 << 20 < sess.memory_info(gpu)["peak"] <= peaks[gpu] <= 16 << 20
    # A plan is made to fit, and gives the same losses; where that is not possible, it is refused.
    with tf.Session(config=options(1)) as sess:
        sess.run(init)
        assert [sess.run([train_op, total_loss], feed)[1] for _ in range(4)] == losses
        assert all(sess.memory_info(gpu)["peak"] <= 1 << 20 for gpu in ("GPU:0", "GPU:1"))
    half = tf.ConfigProto(allow_soft_placement=True, gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=0.5 / 64))
    with tf.Session(config=half) as sess:
        sess.run(init)
        with pytest.raises(errors.ResourceExhaustedError) as refused:
            sess.run([train_op, total_loss], feed)
        assert refused.value.device.endswith(("GPU:0", "GPU:1"))


def events(folder):
    """The records of a folder's file of events."""
    [path] = glob.glob(f"{folder}/events*")
    data, at = Path(path).read_bytes(), 0
    while at < len(data):
        [length] = struct.unpack_from("<Q", data, at)
        yield data[at + 12 : at + 12 + length]
        at += length + 16


def test_devices_are_pinned_and_logged(capsys):
    with tf.device("/gpu:1"):
        a = tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], shape=[2, 3], name="a")
        b = tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], shape=[3, 2], name="b")
    c = tf.matmul(a, b)
    with tf.Session(config=tf.ConfigProto(log_device_placement=True)) as sess:
        assert sess.run(c).tolist() == [[22, 28], [49, 64]]
    said = capsys.readouterr()
    assert "a: (Const): /job:localhost/replica:0/task:0/device:GPU:1" in said.out
    assert "MatMul: (MatMul): /job:localhost/replica:0/task:0/device:GPU:0" in said.out
    assert "Device mapping:" in said.err


def test_a_device_that_is_not_there():
    with tf.device("/gpu:7"):
        a = tf.constant(1.0) + 2.0
    with pytest.raises(errors.InvalidArgumentError, match="Cannot assign a device"):
        tf.Session(config=tf.ConfigProto(allow_soft_placement=False)).run(a)
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as sess:
        assert sess.run(a) == 3
    with tf.Session() as sess:  # as `plimsoll.config` has it
        assert sess.run(a) == 3


def test_fraction_growth_and_visible_devices():
    half = tf.GPUOptions(per_process_gpu_memory_fraction=0.5)
    one = tf.Session(config=tf.ConfigProto(gpu_options=half))
    assert {limit for name, kind, limit in one._devices.names() if kind == "GPU"} == {32 << 20}
    other = tf.Session(config=tf.ConfigProto(gpu_options=half))
    with pytest.raises(errors.ResourceExhaustedError):
        tf.Session(config=tf.ConfigProto(gpu_options=half))
    one.close(), other.close()
    options = tf.ConfigProto()
    options.gpu_options.allow_growth = True
    options.gpu_options.visible_device_list = "1"
    with tf.Session(config=options) as sess:
        assert [name.rsplit("device:")[1] for name in sess.list_devices()] == ["CPU:0", "GPU:0"]
        with tf.device("/gpu:0"):
            assert sess.run(tf.zeros([100]) + 1.0).sum() == 100


def test_logical_devices_of_a_session():
    gpu = config.list_physical_devices("GPU")[0]
    config.set_logical_device_configuration(gpu, [config.LogicalDeviceConfiguration(memory_limit=8)] * 2)
    with tf.Session() as sess:
        outs = []
        for name in ("/gpu:0", "/gpu:1", "/gpu:2"):
            with tf.device(name):
                outs.append(tf.matmul(tf.ones([3, 3]), tf.ones([3, 3])))
        with tf.device("/cpu:0"):
            assert sess.run(tf.add_n(outs)).tolist() == [[9] * 3] * 3
        assert len(config.list_logical_devices("GPU")) == 3


def _in_a_process(results):
    import plimsoll.compat.v1 as tf

    with tf.device("/gpu:0"):
        c = tf.reduce_sum(tf.ones([10, 10]))
    with tf.Session(config=tf.ConfigProto(gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=0.4))) as sess:
        results.put((float(sess.run(c)), sess.list_devices()[-1]))


def test_two_programs_share_a_card():
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=_in_a_process, args=(results,)) for _ in range(2)]
    [process.start() for process in processes]
    assert [results.get(timeout=60)[0] for _ in processes] == [100, 100]
    [process.join() for process in processes]
    assert [process.exitcode for process in processes] == [0, 0]


def test_a_graph_may_grow_under_its_session():
    with tf.Session() as sess:
        v = tf.get_variable("v", initializer=tf.constant([1.0, 2.0]))
        sess.run(tf.global_variables_initializer())
        sess.run(v.assign_add([1.0, 1.0]))
        w = tf.Variable(tf.zeros([2]), name="w")
        sess.run(w.initializer)
        total = v + w
        assert sess.run(total).tolist() == [2, 3] and total.eval().tolist() == [2, 3] and v.eval().tolist() == [2, 3]
        with pytest.raises(errors.FailedPreconditionError):
            sess.run(tf.Variable(1.0))
        v.load([7.0, 8.0])
        assert sess.run([v, ("v/read:0", {"a": v.value()})])[1][1]["a"].tolist() == [7, 8]
        assert sess.run(v.initializer) is None and sess.run("v:0").tolist() == [1, 2]
        x = tf.placeholder(tf.float32)
        assert sess.run([x, x + v], {x: 5})[0] == 5


def test_optimizers_learn():
    x = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    y = x @ np.float32([[1], [-2], [3]])
    kinds = [
        tf.train.GradientDescentOptimizer(0.1),
        tf.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True),
        tf.train.AdamOptimizer(0.2),
        tf.train.AdagradOptimizer(0.8),
        tf.train.RMSPropOptimizer(0.1),
        tf.train.RMSPropOptimizer(0.1, centered=True),
        tf.train.AdadeltaOptimizer(100.0),
    ]
    inputs, wanted = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.float32, [None, 1])
    steps = []
    for index, optimizer in enumerate(kinds):
        for use_resource in (False, True):
            w = tf.get_variable(f"w{index}{use_resource}", [3, 1], initializer=tf.zeros_initializer(), use_resource=use_resource)
            loss = tf.reduce_mean(tf.squared_difference(tf.matmul(inputs, w), wanted))
            pairs = optimizer.compute_gradients(loss, [w])
            steps.append((optimizer.get_name(), loss, optimizer.apply_gradients(pairs)))
    feed = {inputs: x, wanted: y}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for name, loss, step in steps:
            before = sess.run(loss, feed)
            try:
                for _ in range(40):
                    sess.run(step, feed)
            except errors.UnimplementedError as error:
                pytest.fail(f"{name}: {error}")
            assert sess.run(loss, feed) < before / 2, name


def test_checkpoints_of_variables_and_of_their_averages(tmp_path):
    v = tf.get_variable("v", initializer=tf.constant([1.0, 1.0]))
    averages = tf.train.ExponentialMovingAverage(0.5)
    average_op = averages.apply([v])
    saver = tf.train.Saver(max_to_keep=2)
    prefix = str(tmp_path / "model")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(v.assign([3.0, 5.0]))
        sess.run(average_op)
        assert sess.run(averages.average(v)).tolist() == [2, 3]
        for step in range(3):
            assert saver.save(sess, prefix, global_step=step) == f"{prefix}-{step}"
        assert saver.last_checkpoints == [f"{prefix}-1", f"{prefix}-2"] and not glob.glob(f"{prefix}-0.*")
        assert tf.train.latest_checkpoint(str(tmp_path)) == f"{prefix}-2"
        sess.run(v.assign([0.0, 0.0]))
        saver.restore(sess, f"{prefix}-2")
        assert sess.run(v).tolist() == [3, 5]
    with tf.Graph().as_default(), tf.Session() as sess:
        v = tf.get_variable("v", [2])
        tf.train.Saver(tf.train.ExponentialMovingAverage(0.5).variables_to_restore()).restore(sess, f"{prefix}-1")
        assert sess.run(v).tolist() == [2, 3]
        tf.get_variable("other", [1])
        with pytest.raises(errors.NotFoundError, match="other"):
            tf.train.Saver().restore(sess, f"{prefix}-1")
        with pytest.raises(ValueError, match="not a valid checkpoint"):
            tf.train.Saver().restore(sess, f"{prefix}-9")


def test_scopes_share_variables():
    with tf.variable_scope("a") as scope:
        v = tf.get_variable("v", [1])
        with pytest.raises(ValueError, match="already exists"):
            tf.get_variable("v", [1])
        scope.reuse_variables()
        assert tf.get_variable("v", [1]) is v
        with pytest.raises(ValueError, match="does not exist"):
            tf.get_variable("w", [1])
    with tf.variable_scope("a", reuse=tf.AUTO_REUSE):
        assert tf.get_variable("v", [1]) is v and tf.get_variable("w", [1]).name == "a/w:0"
        with pytest.raises(ValueError, match="shape"):
            tf.get_variable("v", [2])
        with pytest.raises(ValueError, match="dtype"):
            tf.get_variable("v", [1], dtype=tf.int32)
    halved = lambda getter, *args, **kwargs: getter(*args, **kwargs) * 0.5  # noqa: E731
    with tf.variable_scope("a", reuse=True, custom_getter=halved):
        assert tf.get_variable("v", [1]).op.type == "Mul"
    with tf.variable_scope("b", regularizer=nn.l2_loss):
        tf.get_variable("v", [3])
    assert [loss.name for loss in tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)] == ["b/v/Regularizer/L2Loss:0"]


def placed_by(function):
    """A node where the function says."""
    with tf.device(function):
        return tf.constant(1)


def test_misuse_is_an_exception():
    x = tf.placeholder(tf.float32, [2], name="x")
    y = x * 2.0
    with tf.Session() as sess:
        for feed in ({x: [1, 2, 3]}, {x: "text"}, {x: y}, {"nothing:0": 1}, {3: 1}, {y.op: 1}):
            with pytest.raises((TypeError, ValueError)):
                sess.run(y, feed)
        with pytest.raises(errors.InvalidArgumentError, match="x"):
            sess.run(y)
        for fetch in (None, 3, "nothing", "y:7", object()):
            with pytest.raises((TypeError, ValueError)):
                sess.run(fetch)
        other = tf.Graph()
        with other.as_default():
            z = tf.constant(1.0)
        with pytest.raises(ValueError, match="not an element of this graph"):
            sess.run(z)
        with pytest.raises(RuntimeError, match="empty"):
            tf.Session(graph=tf.Graph()).run("x:0")
    with pytest.raises(RuntimeError, match="Attempted to use a closed Session"):
        sess.run(y, {x: [1, 2]})
    for wrong in (
        lambda: x + z,
        lambda: x + tf.constant(1),
        lambda: tf.matmul(x, "text"),
        lambda: tf.reshape(x, [3]),
        lambda: tf.add(x, [1, 2, 3]),
        lambda: tf.constant([[1], [1, 2]]),
        lambda: tf.constant(1.5, tf.int32),
        lambda: tf.gradients(tf.constant(1), x),
        lambda: bool(x),
        lambda: list(x),
        lambda: x.set_shape([3]),
        lambda: tf.train.GradientDescentOptimizer(0.1).minimize(y),
        lambda: tf.Variable(),
        lambda: tf.device("/nonsense:1").__enter__(),
        lambda: placed_by(lambda op: 3),
        lambda: placed_by(lambda op: "/nonsense:1"),
        lambda: tf.name_scope("not a name").__enter__(),
        lambda: tf.ConfigProto(gpu_options=3),
        lambda: tf.as_dtype("no type"),
        lambda: x.graph.get_tensor_by_name("x"),
    ):
        with pytest.raises((TypeError, ValueError)):
            wrong()
    # Scopes are as they were.
    assert tf.identity(x).name == "Identity:0" and tf.identity(x).device == ""
    graph = tf.get_default_graph()
    graph.finalize()
    with pytest.raises(RuntimeError, match="finalized"):
        tf.constant(1)


def test_what_is_missing_is_named():
    for missing, name in (
        (lambda: tf.FIFOQueue, "plimsoll.compat.v1.FIFOQueue"),
        (lambda: tf.nn.ctc_loss, "plimsoll.compat.v1.nn.ctc_loss"),
        (lambda: tf.train.SyncReplicasOptimizer, "plimsoll.compat.v1.train.SyncReplicasOptimizer"),
        (lambda: tf.math.bessel_i0, "plimsoll.compat.v1.math.bessel_i0"),
        (lambda: tf.raw_ops.NoSuchOperation, "plimsoll.compat.v1.raw_ops.NoSuchOperation"),
        (lambda: tf.get_variable("v", [1], partitioner=1), "plimsoll.compat.v1.get_variable: partitioner=1"),
        (lambda: tf.Session("grpc://there"), "plimsoll.compat.v1.Session: target="),
        (lambda: tf.Session().partial_run(), "plimsoll.compat.v1.Session.partial_run"),
        (lambda: tf.ConfigProto(cluster_def=1), "plimsoll.compat.v1.ConfigProto.cluster_def"),
    ):
        with pytest.raises(NotImplementedError, match=re.escape(name)):
            missing()
    assert not hasattr(tf, "FIFOQueue")
    with tf.Session() as sess:
        with pytest.raises(NotImplementedError, match="timeout_in_ms"):
            sess.run(tf.constant(1), options=tf.RunOptions(timeout_in_ms=5))
        assert sess.run(tf.constant(1), options=tf.RunOptions(report_tensor_allocations_upon_oom=True)) == 1
        with pytest.raises(NotImplementedError, match="RandomShuffle"):
            sess.run(tf.raw_ops.RandomShuffle(value=tf.constant([1, 2])))


def test_functions_that_are_one_operation_have_kernels():
    computed = set(_op.table().computed())
    named = {**_math._OPERATIONS, **nn._OPERATIONS}
    assert not [name for name, (op, _) in named.items() if op not in computed]
    assert all(callable(getattr(tf.math, name)) for name in dir(tf.math))
    assert all(getattr(tf, name) is not None for name in dir(tf) if name != "newaxis")


def test_it_is_a_name_of_the_package():
    source = (
        "import sys, plimsoll; assert 'plimsoll.compat' not in sys.modules; print(plimsoll.compat.v1.Session, plimsoll.config.threading)"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=PACKAGE)
    assert "plimsoll.compat.v1" in done.stdout, done.stderr


def test_seeds_are_the_graphs():
    def numbers(seed):
        with tf.Graph().as_default(), tf.Session() as sess:
            tf.set_random_seed(seed)
            return [sess.run(tf.random_uniform([4], seed=own)).tolist() for own in (None, None, 3)]

    first, again, other = numbers(1), numbers(1), numbers(2)
    assert first == again and first[0] != first[1] and first[2] != other[2]


def test_summaries_and_threads(tmp_path):
    x = tf.placeholder(tf.float32)
    with tf.name_scope("scope"):
        tf.summary.scalar("a number", tf.reduce_sum(x))
    tf.summary.histogram("all", x)
    merged = tf.summary.merge_all()
    with tf.Session() as sess, tf.summary.FileWriter(str(tmp_path), sess.graph) as writer:
        text, total = sess.run([merged, tf.reduce_sum(x)], {x: [1.0, 2.0, -0.5]})
        assert total == 2.5 and b"scope/a_number" in text and struct.pack("<f", 2.5) in text and b"all" in text
        writer.add_summary(text, 3)
    assert len(list(events(tmp_path))) == 3

    coord, seen = tf.train.Coordinator(), []

    def work():
        with coord.stop_on_exception():
            while not coord.should_stop():
                seen.append(1)
                raise RuntimeError("enough")

    threads = [threading.Thread(target=work) for _ in range(2)]
    [thread.start() for thread in threads]
    with pytest.raises(RuntimeError, match="enough"):
        coord.join(threads)
    assert seen and coord.should_stop()


def test_files_and_flags(tmp_path):
    folder = str(tmp_path / "a" / "b")
    tf.gfile.MakeDirs(folder)
    with tf.gfile.GFile(f"{folder}/text", "w") as file:
        file.write("words")
    assert tf.gfile.Exists(folder) and tf.gfile.ListDirectory(folder) == ["text"]
    with pytest.raises(errors.AlreadyExistsError):
        tf.gfile.Copy(f"{folder}/text", f"{folder}/text")
    tf.gfile.DeleteRecursively(folder)
    with pytest.raises(errors.NotFoundError):
        tf.gfile.DeleteRecursively(folder)
    flags = tf.app.flags
    flags.FLAGS.__init__()
    flags.DEFINE_integer("count", 3, "How many.")
    flags.DEFINE_boolean("loud", False, "Whether.")
    flags.DEFINE_string("name", None, "Who.")
    assert flags.FLAGS(["program", "--count=5", "--loud", "rest"]) == ["program", "rest"]
    assert (flags.FLAGS.count, flags.FLAGS.loud, flags.FLAGS.name) == (5, True, None)
    flags.FLAGS(["program", "--noloud"])
    assert flags.FLAGS.loud is False
    with pytest.raises(SystemExit) as ended:
        tf.app.run(lambda argv: len(argv), ["program", "a"])
    assert ended.value.code == 2


def test_conditions_run_one_side_and_have_gradients():
    x, p = tf.placeholder(tf.float32, []), tf.placeholder(tf.bool, [])
    for use_resource in (False, True):
        v = tf.get_variable(f"v{use_resource}", initializer=2.0, use_resource=use_resource)
        y = tf.cond(p, lambda: x * v + 1.0, lambda: v - x)
        change = tf.cond(p, lambda: tf.assign_add(v, 1.0), lambda: tf.assign_sub(v, 10.0))
        nested = tf.cond(p, lambda: tf.cond(x > 2.0, lambda: v * 3.0, lambda: x), lambda: {"only": x}["only"])
        only = tf.cond(p, lambda: v * v, lambda: tf.constant(7.0))
        slopes = [tf.gradients(each, [x, v]) for each in (y, nested)] + [tf.gradients(only, [v])]
        with tf.Session() as sess:
            sess.run(v.initializer)
            assert sess.run([y, slopes[0]], {x: 3.0, p: True}) == [7, [2, 3]]
            assert sess.run([y, slopes[0]], {x: 3.0, p: False}) == [-1, [-1, 1]]
            assert sess.run([nested, slopes[1]], {x: 3.0, p: True}) == [6, [0, 3]]
            assert sess.run([nested, slopes[1]], {x: 1.0, p: True}) == [1, [1, 0]]
            assert [sess.run([only, slopes[2]], {p: side}) for side in (True, False)] == [[4, [4]], [7, [0]]]
            assert (sess.run(change, {p: True}), sess.run(v)) == (3, 3)
            assert (sess.run(change, {p: False}), sess.run(v)) == (-7, -7)
    many = tf.cond(p, lambda: (x, [x + 1.0]), lambda: (x, [x - 1.0]))
    chosen = tf.case([(x > 5.0, lambda: tf.constant(1)), (x > 3.0, lambda: tf.constant(2))], default=lambda: tf.constant(3))
    done = tf.cond(p, lambda: tf.no_op(), lambda: tf.no_op())
    with tf.Session() as sess:
        assert sess.run(many, {x: 1.0, p: True}) == (1, [2]) and sess.run(many, {x: 1.0, p: False}) == (1, [0])
        assert [sess.run(chosen, {x: value}) for value in (6.0, 4.0, 0.0)] == [1, 2, 3]
        assert sess.run(done, {p: True}) == True  # noqa: E712
    for wrong in (
        lambda: tf.cond(p, lambda: x, lambda: (x, x)),
        lambda: tf.cond(p, lambda: x, lambda: tf.constant(1)),
        lambda: tf.cond(p, lambda: None, lambda: None),
        lambda: tf.cond(True, lambda: x, lambda: x),
        lambda: tf.cond(p, x, x),
        lambda: tf.cond(x, lambda: x, lambda: x),
    ):
        with pytest.raises((TypeError, ValueError)):
            wrong()


def test_loops_run_in_frames():
    x = tf.placeholder(tf.float32, [2])
    v = tf.get_variable("v", initializer=[1.0, 2.0])
    count, total = tf.while_loop(lambda i, s: i < 10, lambda i, s: [i + 1, s + x * v], [tf.constant(0), tf.zeros([2])])
    nested = tf.while_loop(
        lambda i, a: tf.less(i, 3),
        lambda i, a: (i + 1, tf.while_loop(lambda b: b < 100.0, lambda b: b * 2.0, [a + 1.0])),
        (0, 1.0),
    )
    inside = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.cond(tf.equal(i, 1), lambda: a * 10.0, lambda: a + 1.0)), (0, 1.0))
    bounded = tf.while_loop(lambda i: True, lambda i: i + 2, [0], maximum_iterations=5)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert [part.tolist() for part in sess.run([count, total], {x: [1.0, 0.5]})] == [10, [10, 10]]
        assert sess.run(nested) == (3, 130) and sess.run(inside) == (3, 21) and sess.run(bounded) == 10
        assert sess.plan(total, {x: [1.0, 0.5]}).to_dict()["devices"][0]["certainty"] == "exact"
    with pytest.raises(NotImplementedError, match="Exit"):
        tf.gradients(total, [x])
    for wrong in (
        lambda: tf.while_loop(lambda i: i < 3, lambda i: (i, i), [0]),
        lambda: tf.while_loop(lambda i: i < 3, lambda i: tf.stack([i, i]), [0]),
        lambda: tf.while_loop(lambda i: i < 3, lambda i: i * 1.5, [0]),
        lambda: tf.while_loop(lambda: True, lambda: (), []),
        lambda: tf.while_loop(lambda i: i, lambda i: i, [0]),
        lambda: tf.while_loop(None, lambda i: i, [0]),
    ):
        with pytest.raises((TypeError, ValueError)):
            wrong()


def test_layers_learn():
    x = tf.placeholder(tf.float32, [None, 8, 8, 1])
    y = tf.placeholder(tf.int32, [None])
    training = tf.placeholder_with_default(False, [])
    made = tf.layers.conv2d(x, 4, 3, padding="same", activation=tf.nn.relu, name="conv")
    made = tf.layers.batch_normalization(made, training=training, momentum=0.5, name="norm")
    made = tf.layers.flatten(tf.layers.max_pooling2d(made, 2, 2))
    made = tf.layers.dropout(made, 0.1, training=training, seed=1)
    logits = tf.layers.dense(made, 2, name="outputs")
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train = tf.train.AdamOptimizer(0.02).minimize(loss)
    names = [v.op.name for v in tf.trainable_variables()]
    assert names == ["conv/kernel", "conv/bias", "norm/gamma", "norm/beta", "outputs/kernel", "outputs/bias"]
    assert logits.op.name == "outputs/BiasAdd" and len(tf.get_collection(tf.GraphKeys.UPDATE_OPS)) == 2
    random = np.random.default_rng(0)
    images = random.normal(size=(32, 8, 8, 1)).astype(np.float32)
    feed = {x: images, y: (images[:, :4].sum((1, 2, 3)) > images[:, 4:].sum((1, 2, 3))).astype(np.int32)}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        moving = "norm/moving_variance:0"
        before, first = sess.run(moving), sess.run(loss, feed)
        assert sess.run(loss, feed) == first and (sess.run(moving) == before).all()
        for _ in range(30):
            sess.run(train, {**feed, training: True})
        assert sess.run(loss, feed) < first / 2 and (sess.run(moving) != before).any()
    with tf.variable_scope("again"):
        for _ in range(2):
            tf.layers.dense(tf.ones([1, 2]), 3)
        with pytest.raises(ValueError, match="already exists"):
            tf.layers.dense(tf.ones([1, 2]), 3, name="dense")
        tf.layers.dense(tf.ones([1, 2]), 3, name="dense", reuse=True)
    assert [v.op.name for v in tf.global_variables("again")] == [f"again/dense{i}/{part}" for i in ("", "_1") for part in ("kernel", "bias")]
    with pytest.raises(NotImplementedError, match="layers.conv3d"):
        tf.layers.conv3d
    with pytest.raises(ValueError, match="should be defined"):
        tf.layers.dense(tf.placeholder(tf.float32, [2, None]), 3)
