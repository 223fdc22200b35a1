"""Graphs made by hand to hurt: deep, wide, exponential, circular, huge. Small files, which must be answered soon and in little memory."""

LIMIT = ["--memory-limit", "CPU:0=256MiB"]
TIMEOUT = 20
MEMORY = 3 << 30


def attack(context):
    chance = context.random
    turn = 0
    while context.goes_on():
        name, make = GRAPHS[turn % len(GRAPHS)]
        # The first round has the sizes that were found to hurt; later ones any.
        scale = 1 if turn < len(GRAPHS) else chance.choice([0.01, 0.3, 1, 1.7])
        text, fetch = make(scale, chance)
        file = context.folder / f"{name}.pbtxt"
        file.write_text(text)
        commands = [["place", file], ["plan", file, "--fetch", fetch, *LIMIT], ["eval", file, "--fetch", fetch, *LIMIT]]
        for command in commands if turn < len(GRAPHS) else [chance.choice(commands)]:
            context.judged(f"{name} x {scale}", command, file, timeout=TIMEOUT, memory=MEMORY)
            if not context.goes_on():
                break
        turn += 1
        file.unlink()
    context.count("kinds_of_graphs", min(turn, len(GRAPHS)))


def node(name, op, inputs=(), attributes=""):
    return f'node {{ name: "{name}" op: "{op}" {"".join(f"input: {chr(34)}{each}{chr(34)} " for each in inputs)}{attributes} }}\n'


T = 'attr { key: "T" value { type: DT_FLOAT } } '


def const(name, value=1.0, shape=""):
    tensor = f"tensor {{ dtype: DT_FLOAT tensor_shape {{ {shape} }} float_val: {value} }}"
    return node(name, "Const", (), f'attr {{ key: "dtype" value {{ type: DT_FLOAT }} }} attr {{ key: "value" value {{ {tensor} }} }}')


def function(name, body, result):
    argument = 'input_arg { name: "x" type: DT_FLOAT } output_arg { name: "y" type: DT_FLOAT }'
    nodes = body.replace("node {", "node_def {")
    return f'function {{ signature {{ name: "{name}" {argument} }}\n{nodes} ret {{ key: "y" value: "{result}" }} }}\n'


def call(name, function_name, inputs, how="PartitionedCall"):
    if how is None:
        return node(name, function_name, inputs)
    types = 'attr { key: "Tin" value { list { type: DT_FLOAT } } } attr { key: "Tout" value { list { type: DT_FLOAT } } } '
    return node(name, how, inputs, types + f'attr {{ key: "f" value {{ func {{ name: "{function_name}" }} }} }}')


def library(functions):
    return "library {\n" + "".join(functions) + "}\n"


def functions_in_a_row(scale, chance):
    count, how = int(4000 * scale), chance.choice(["PartitionedCall", "StatefulPartitionedCall", None])
    # What calls a function by its name has its result's name behind it.
    out = "output" if how else "y"
    row = [function(f"f{at}", call("c", f"f{at + 1}", ["x"], how), f"c:{out}:0") for at in range(count)]
    last = function(f"f{count}", node("n", "Neg", ["x"], T), "n:y:0")
    return const("a") + call("out", "f0", ["a"], how) + library([*row, last]), "out:0"


def exponential_calls(scale, _chance):
    count = max(2, int(30 * scale))
    body = lambda at: call("c", f"f{at + 1}", ["x"]) + call("d", f"f{at + 1}", ["c:output:0"])  # noqa: E731
    row = [function(f"f{at}", body(at), "d:output:0") for at in range(count)]
    return const("a") + call("out", "f0", ["a"]) + library([*row, function(f"f{count}", node("n", "Neg", ["x"], T), "n:y:0")]), "out:0"


def branch(name, inputs, functions, op):
    then, otherwise = functions
    types = "".join(
        f'attr {{ key: "{key}" value {{ {value} }} }} '
        for key, value in [
            ("Tcond", "type: DT_FLOAT"),
            ("Tin", "list { type: DT_FLOAT }"),
            ("Tout", "list { type: DT_FLOAT }"),
            ("then_branch", f'func {{ name: "{then}" }}'),
            ("else_branch", f'func {{ name: "{otherwise}" }}'),
            ("output_shapes", "list { shape { } }"),
        ]
    )
    return node(name, op, inputs, types)


def nested_if(scale, chance):
    count, op = max(2, int(17 * scale)), chance.choice(["If", "StatelessIf"])
    body = lambda at: branch("c", ["x", "x"], (f"f{at + 1}", f"f{at + 1}"), op)  # noqa: E731
    row = [function(f"f{at}", body(at), "c:output:0") for at in range(count)]
    last = function(f"f{count}", node("n", "Neg", ["x"], T), "n:y:0")
    return const("a") + branch("out", ["a", "a"], ("f0", "f0"), op) + library([*row, last]), "out:0"


def while_loop(name, inputs, condition, body):
    types = "".join(
        f'attr {{ key: "{key}" value {{ {value} }} }} '
        for key, value in [
            ("T", "list { type: DT_FLOAT }"),
            ("cond", f'func {{ name: "{condition}" }}'),
            ("body", f'func {{ name: "{body}" }}'),
        ]
    )
    return node(name, "While", inputs, types)


def nested_while(scale, _chance):
    count = max(2, int(300 * scale))
    row = [function(f"f{at}", while_loop("c", ["x"], "never", f"f{at + 1}"), "c:output:0") for at in range(count)]
    never = function("never", node("n", "Neg", ["x"], T), "n:y:0")
    last = function(f"f{count}", node("n", "Neg", ["x"], T), "n:y:0")
    return const("a", 0.0) + while_loop("out", ["a"], "never", "f0") + library([*row, never, last]), "out:0"


def recursion(_scale, chance):
    how = chance.choice(["PartitionedCall", "StatefulPartitionedCall"])
    pair = [
        function("f", call("c", "g", ["x"], how), "c:output:0"),
        function("g", call("c", "f", ["x"], how), "c:output:0"),
    ]
    return const("a") + call("out", "f", ["a"], how) + library(pair), "out:0"


def long_name(scale, chance):
    name = chance.choice(["x", "a/", "é"]) * int(65_536 * scale)
    return const(name) + node("out", "Neg", [name], T), "out:0"


def wide_sum(scale, _chance):
    count = max(2, int(50_000 * scale))
    nodes = const("a") + "".join(node(f"n{at}", "Neg", ["a"], T) for at in range(count))
    attributes = T + f'attr {{ key: "N" value {{ i: {count} }} }} '
    return nodes + node("out", "AddN", [f"n{at}" for at in range(count)], attributes), "out:0"


def sum_of_one(scale, _chance):
    count = max(2, int(50_000 * scale))
    return const("a") + node("out", "AddN", ["a"] * count, T + f'attr {{ key: "N" value {{ i: {count} }} }} '), "out:0"


def chain(scale, chance):
    count, op = max(2, int(100_000 * scale)), chance.choice(["Neg", "Identity", "Tanh"])
    return const("n0") + "".join(node(f"n{at + 1}", op, [f"n{at}"], T) for at in range(count)), f"n{count}:0"


def doubling(scale, _chance):
    """Each node uses the one before twice: 2^n paths, n nodes."""
    count = max(2, int(20_000 * scale))
    return const("n0") + "".join(node(f"n{at + 1}", "Add", [f"n{at}", f"n{at}"], T) for at in range(count)), f"n{count}:0"


def control_edges(scale, _chance):
    """All nodes before each."""
    count = max(2, int(400 * scale))
    nodes = [node(f"n{at}", "Neg", ["a", *(f"^n{other}" for other in range(at))], T) for at in range(count)]
    return const("a") + "".join(nodes), f"n{count - 1}:0"


def cycle(_scale, chance):
    size = chance.choice([1, 2, 1000])
    return "".join(node(f"n{at}", "Neg", [f"n{(at + 1) % size}"], T) for at in range(size)), "n0:0"


def control_to_itself(_scale, _chance):
    return const("a") + node("out", "Neg", ["a", "^out"], T), "out:0"


def missing_things(_scale, chance):
    kind = chance.choice(["function", "input", "output", "control", "operation", "twice"])
    nodes = {
        "function": const("a") + call("out", "nowhere", ["a"]),
        "input": node("out", "Neg", ["nowhere"], T),
        "output": const("a") + node("out", "Neg", ["a:4294967296"], T),
        "control": const("a") + node("out", "Neg", ["a", "^nowhere"], T),
        "operation": node("out", "NoSuchOperation" * 1000),
        "twice": const("a") + const("a") + node("out", "Neg", ["a"], T),
    }
    return nodes[kind], "out:0"


def huge_shape(_scale, chance):
    size = chance.choice([1 << 31, 1 << 40, 1 << 62, (1 << 63) - 1, -1, -(1 << 62), 0])
    dims = f"dim {{ size: {size} }} " * chance.choice([1, 2, 4, 254, 3000])
    return const("a", 1.0, dims) + node("out", "Neg", ["a"], T), "out:0"


def huge_fill(_scale, chance):
    dims = chance.choice(["2147483647", "-1", "65536"])
    count = chance.choice([1, 2, 4])
    tensor = f"tensor {{ dtype: DT_INT32 tensor_shape {{ dim {{ size: {count} }} }} {f'int_val: {dims} ' * count} }}"
    shape = node("s", "Const", (), f'attr {{ key: "dtype" value {{ type: DT_INT32 }} }} attr {{ key: "value" value {{ {tensor} }} }}')
    kinds = T + 'attr { key: "index_type" value { type: DT_INT32 } } '
    return const("a") + shape + node("out", "Fill", ["s", "a"], kinds), "out:0"


def deep_text(scale, chance):
    count = int(100_000 * scale)
    opening, closing = chance.choice([("a { ", "} "), ("node { ", "} "), ("[", "]"), ("<", ">"), ('attr { key: "k" value { func { ', "} } } ")])
    return opening * count + (closing * count if chance.random() < 0.5 else ""), "out:0"


def deep_attribute(scale, chance):
    """A function's name with attributes that have a function's name with attributes ..."""
    count = max(1, int(chance.choice([90, 5_000]) * scale))
    opening, closing = 'value { func { name: "f" attr { key: "k" ', "} } } "
    return const("a") + node("out", "Neg", ["a"], T + 'attr { key: "g" ' + opening * count + "value { i: 1 } " + closing * count + "} "), "out:0"


def colocation(scale, chance):
    count = max(2, int(3_000 * scale))
    nodes = []
    for at in range(count):
        other = chance.choice([at, (at + 1) % count, 0, 99_999_999])
        group = f'attr {{ key: "_class" value {{ list {{ s: "loc:@n{other}" }} }} }} '
        nodes.append(node(f"n{at}", "Neg", ["a"], T + group + chance.choice(["", 'device: "/cpu:0" ', 'device: "/gpu:7" '])))
    return const("a") + "".join(nodes), "n0:0"


GRAPHS = [
    (make.__name__, make)
    for make in [
        functions_in_a_row, exponential_calls, nested_if, nested_while, recursion, long_name, wide_sum, sum_of_one, chain, doubling,
        control_edges, cycle, control_to_itself, missing_things, huge_shape, huge_fill, deep_text, deep_attribute, colocation,
    ]
]  # fmt: skip
