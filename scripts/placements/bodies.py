"""Where nodes of bodies are: of calls, and of conditions that are lowered, by the name that Plimsoll gives them."""
import re

CALLS = {"PartitionedCall", "StatefulPartitionedCall"}
# Bodies that are placed by themselves have logs of their own, without the name of the call: only names that no other body has tell.
NAMED = re.compile(r"(^|/)[fg]_[^/]*$")
BRANCHES = {"If": ("then_branch", "else_branch"), "StatelessIf": ("then_branch", "else_branch")}


def plain(log):
    """A log without the numbers that TensorFlow gives branches, and functions' argument and result nodes."""
    return {re.sub(r"/(then|else)/_\d+/", r"/\1/", name): at for name, at in log.items() if not name.startswith("Func/")}


def walk(functions, nodes, ours, inlined, local, bound):
    """For every node of a body: our name, TensorFlow's where calls are inlined, its name in the log of the body, and the name of
    the call that it is bound to."""
    for node in nodes:
        name, at = ours + node.name, local + node.name
        if inlined:
            yield name, inlined + node.name, at, bound
        lowered = node.op in BRANCHES and node.attr["_lower_using_switch_merge"].b
        if node.op in CALLS and not bound:
            inner = functions[node.attr["f"].func.name]
            yield from walk(functions, inner.node_def, f"{name}/", f"{inlined}{node.name}/", "", None)
        elif node.op in functions:
            yield from walk(functions, functions[node.op].node_def, f"{name}/", f"{inlined}{node.name}/", f"{at}/", bound or at)
        elif lowered and not bound:
            for side, attr in zip(("then", "else"), BRANCHES[node.op]):
                inner = functions[node.attr[attr].func.name]
                yield from walk(functions, inner.node_def, f"{name}/{node.op}/{side}/", f"{inlined}{node.name}/{side}/", f"{at}/{side}/", None)


def found(definition, default, inlined):
    """The nodes of bodies as TensorFlow places them unless told otherwise, as "name CPU"; and those that are elsewhere where calls are
    inlined before the graph is placed, which may be no place at all (None)."""
    functions = {function.signature.name: function for function in definition.library.function}
    default = plain(default)
    nodes = [(ours, theirs, default.get(bound or local)) for ours, theirs, local, bound in walk(functions, definition.node, "", "", "", None)]
    nodes = [node for node in nodes if node[2] is not None and NAMED.search(node[0])]
    there = inlined is not None and plain(inlined)
    other = there and [f"{ours} {there[theirs]}" for ours, theirs, at in nodes if there.get(theirs, at) != at]
    return [f"{ours} {at}" for ours, _, at in nodes], other if there else None
