"""Cases for test_parity.cpp, with PyTorch 2.15's answers: random ones, and PyTorch's own samples.

    python3 tests/parity/parity.py cases --random 20000 --seed 7 [--op_db] [--ops softmax,sum]
    INKLING_PARITY=cases build/release/tests/tests_autograd test_parity

writes cases.jsonl, a case a line, and cases.safetensors, the tensors that they name. Without
INKLING_PARITY the test runs the fixture of this folder, which was made by

    python3 tests/parity/parity.py tests/parity/fixture --random 690 --seed 1

A case holds an op's name and arguments, and of PyTorch: the outputs (value, dtype, tolerance, grad_fn's
name, printed text), the gradients for random dy, the second gradients for random v, or that it refused.
ops.py has the ops, differences.py what is lifted. --op_db needs the packages pytest and expecttest.
"""
import argparse
import json
import math
import random
import warnings
from collections import Counter

import torch

import differences
from ops import OPS, Draw

REFUSALS = (AssertionError, RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, ZeroDivisionError, OverflowError)
EPS = {torch.float64: 2**-52, torch.float32: 2**-23, torch.bfloat16: 2**-8}
KNOWN_DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64", torch.bool: "BOOL"}


class NotExpressible(Exception):
    pass


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [x for item in value for x in tensors_in(item)]
    if isinstance(value, dict):
        return tensors_in(list(value.values()))
    return []


def replaced(value, change):
    """The arguments with every tensor x replaced by change(x)."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {k: replaced(v, change) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [replaced(v, change) for v in value]
    return value


class Case:
    def __init__(self, op, arguments, seed):
        self.op, self.arguments, self.seed = op, arguments, seed
        self.tensors = tensors_in(arguments)
        self.outputs, self.error = [], None


def call(op, arguments, seed):
    """The outputs, as a list of tensors."""
    torch.manual_seed(seed)
    if op.endswith("_"):  # into a copy, since a leaf refuses
        arguments = {**arguments, "input": arguments["input"].clone(memory_format=torch.contiguous_format)}
    made = OPS[op].call(**arguments)
    made = made if isinstance(made, (list, tuple)) else [made]
    return [x if isinstance(x, torch.Tensor) else torch.tensor(x) for x in made]


def derivatives(outputs, leaves, seed, dys=None, vs=None):
    """dys, gradients, vs and second gradients; None where there is none."""
    torch.manual_seed(seed + 1)
    through = [y for y in outputs if y.requires_grad]
    if dys is None:
        dys = [torch.randn(y.shape, dtype=torch.float64).to(y.dtype).requires_grad_() for y in through]
    grads = torch.autograd.grad(through, leaves, dys, create_graph=True, allow_unused=True)
    again = [g for g in grads if g is not None and g.requires_grad]
    if vs is None:
        vs = [torch.randn(g.shape, dtype=torch.float64).to(g.dtype) for g in again]
    second = None
    if again:
        try:
            second = torch.autograd.grad(again, list(leaves) + dys, vs, allow_unused=True)
        except REFUSALS:
            pass
    which = [i for i, g in enumerate(grads) if g is not None and g.requires_grad]
    return dys, grads, which, vs, second


def in_f64(case, dys, vs):
    """What the case gives in f64: (outputs, gradients, second gradients), each None where that fails."""
    made = {}

    def wide(x):
        if not x.dtype.is_floating_point:
            return x
        if id(x) not in made:
            made[id(x)] = x.detach().double().requires_grad_(x.requires_grad)
        return made[id(x)]

    arguments = replaced(case.arguments, wide)
    if isinstance(arguments.get("dtype"), str) and arguments["dtype"] in ("float32", "bfloat16"):
        arguments["dtype"] = "float64"
    try:
        outputs = call(case.op, arguments, case.seed)
        leaves = [x for x in tensors_in(arguments) if x.requires_grad]
        if dys is None:
            return outputs, None, None
        _, grads, _, _, second = derivatives(outputs, leaves, case.seed, [g.detach().double().requires_grad_() for g in dys],
                                             [v.double() for v in vs])
        return outputs, grads, second
    except REFUSALS:
        return None, None, None


def tolerance(x, truth, floor, tensors):
    """How far another program's result may lie from x, beside a few units of its own last place: as far
    as PyTorch's own lies from the same in f64, and what a sum of numbers as large as x's largest, or as
    `floor`, loses in the narrowest dtype that the case has."""
    if not x.dtype.is_floating_point:
        return 0.0
    finite = x.double().abs()
    finite = finite[finite.isfinite()]
    largest = max(finite.max().item() if finite.numel() else 0.0, floor)
    narrowest = max([x, *tensors], key=lambda t: EPS.get(t.dtype, 0)).dtype
    units = 8 if narrowest == torch.bfloat16 else 64 if narrowest == torch.float32 else 2**16
    distance = 0.0
    if truth is not None and truth.shape == x.shape and narrowest != torch.float64:
        apart = (x.double() - truth.double()).abs()
        apart = apart[apart.isfinite()]
        distance = apart.max().item() if apart.numel() else 0.0
    return 4 * distance + units * EPS[narrowest] * largest


class Writer:
    def __init__(self, prefix):
        self.cases = open(prefix + ".jsonl", "w")
        self.file, self.header, self.data, self.at = prefix + ".safetensors", {}, [], 0

    def store(self, x):
        """The name of a flat tensor."""
        x = torch.empty(x.shape, dtype=x.dtype).copy_(x.detach())  # also what PyTorch keeps as "all zeros"
        data = (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).numpy().tobytes()
        name = str(len(self.header))
        self.header[name] = {"dtype": KNOWN_DTYPES[x.dtype], "shape": list(x.shape), "data_offsets": [self.at, self.at + len(data)]}
        self.at += len(data)
        self.data.append(data)
        return name

    def argument(self, value):
        if isinstance(value, torch.Tensor):
            if value.numel() == 0:
                flat, offset = value.reshape(-1), 0
            else:
                offset = value.storage_offset() if value.storage_offset() < 64 else 0
                count = sum((s - 1) * step for s, step in zip(value.shape, value.stride())) + 1
                flat = torch.as_strided(value.detach(), (offset + count,), (1,), value.storage_offset() - offset)
            strides = list(value.stride()) if value.numel() else None
            return {"t": self.store(flat), "shape": list(value.shape), "strides": strides, "offset": offset, "grad": value.requires_grad}
        if isinstance(value, float) and not math.isfinite(value):
            return {"number": str(value)}
        if isinstance(value, slice):
            return {"slice": [value.start, value.stop, value.step]}
        if value is Ellipsis:
            return "..."
        if isinstance(value, (list, tuple)):
            return [self.argument(v) for v in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise NotExpressible(type(value).__name__)

    def result(self, x, truth, case, floor=0.0):
        if x is None:
            return None
        if x.dtype not in KNOWN_DTYPES:
            raise NotExpressible(str(x.dtype))
        return {"t": self.store(x), "tol": tolerance(x.detach(), truth, floor, case.tensors)}

    def close(self):
        header = json.dumps(self.header, separators=(",", ":")).encode()
        header += b" " * (-len(header) % 8)
        with open(self.file, "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header + b"".join(self.data))
        self.cases.close()


def evaluate(case, writer):
    """Writes the case with PyTorch's answers."""
    entry = {"op": case.op, "seed": case.seed, "args": {k: writer.argument(v) for k, v in case.arguments.items()}}
    try:
        case.outputs = call(case.op, case.arguments, case.seed)
    except REFUSALS as error:
        case.error = str(error)
    lift = differences.lifted(case)
    if "case" in lift:
        return "lifted"
    if case.error is not None:
        entry["error"] = case.error.split("\n")[0][:100]
    else:
        add_answers(entry, case, writer)
    entry["lift"] = sorted(lift)
    writer.cases.write(json.dumps(entry, separators=(",", ":")) + "\n")
    return "refused" if case.error else "ok"


def add_answers(entry, case, writer):
    outputs = case.outputs
    leaves = [x for x in case.tensors if x.requires_grad]
    dys = grads = vs = second = None
    if OPS[case.op].grad and any(y.requires_grad for y in outputs):
        try:
            dys, grads, which, vs, second = derivatives(outputs, leaves, case.seed)
        except REFUSALS:
            dys = None
    truth = in_f64(case, dys, vs)
    at = lambda list_, i: list_[i] if list_ is not None and i < len(list_) else None
    entry["out"] = []
    for i, y in enumerate(outputs):
        one = writer.result(y, at(truth[0], i), case, OPS[case.op].sums)
        if OPS[case.op].exact and "alpha" not in case.arguments and len({x.dtype for x in case.tensors}) == 1:
            one["tol"] = 0.0
        if y.grad_fn is not None:
            one["grad_fn"] = OPS[case.op].shown or type(y.grad_fn).__name__
        if y.numel() <= 30:
            one["text"] = str(y.detach())
        entry["out"].append(one)
    if dys is None:
        return
    entry["dy"] = [writer.store(g) for g in dys]
    entry["grad"] = [writer.result(g, at(truth[1], i), case, 1.0) for i, g in enumerate(grads)]
    if second is not None:
        entry["which"], entry["v"] = which, [writer.store(v) for v in vs]
        # Each is a sum of products of all of them, and may cancel.
        floor = 4 * max([1.0] + [g[g.isfinite()].abs().max().item() for g in (*grads, *second)
                             if g is not None and g.isfinite().any()])
        entry["second"] = [writer.result(g, at(truth[2], i), case, floor) for i, g in enumerate(second)]


def random_cases(count, seed, names, edges):
    for i in range(count):
        rng = random.Random(f"{seed} {i}")
        name = names[i % len(names)]
        yield Case(name, OPS[name].draw(Draw(rng, edges)), rng.randrange(2**31))


def bound(op, sample):
    """A sample's arguments by name."""
    params = OPS[op].params.split()
    if op == "einsum":
        return {"equation": sample.args[0], "operands": list(sample.input)}
    positional = [sample.input, *sample.args]
    if op in ("var", "std", "var_mean") and len(positional) == 2 and isinstance(positional[1], bool):
        raise NotExpressible("unbiased as the only argument")
    # Some ops take their list of sizes as separate arguments.
    if len(positional) > len(params) and all(isinstance(a, int) for a in positional[1:]):
        positional = [sample.input, list(positional[1:])]
    if len(positional) > len(params):
        raise NotExpressible("more arguments")
    arguments = {**dict(zip(params, positional)), **sample.kwargs}
    aliases = {"axis": "dim", "out_dtype": "dtype", "unbiased": "correction"}
    arguments = {aliases.get(k, k): v for k, v in arguments.items()}
    for k in ("size_average", "reduce", "enable_gqa", "_stacklevel"):
        if arguments.get(k) in (None, False, 3, 5):
            arguments.pop(k, None)
    if "correction" in arguments and isinstance(arguments["correction"], bool):
        arguments["correction"] = int(arguments["correction"])
    arguments = {k: v for k, v in arguments.items() if v is not None}
    if not set(arguments) <= set(params):
        raise NotExpressible("no argument " + ", ".join(sorted(set(arguments) - set(params))))
    if op == "index":
        indices = arguments["indices"]
        arguments["indices"] = list(indices) if isinstance(indices, tuple) else [indices]
        if any(isinstance(one, (list, tuple, bool)) for one in arguments["indices"]):
            raise NotExpressible("a list of ids")

    def given(name, kind):
        return isinstance(arguments.get(name), kind)

    if (op == "squeeze" and given("dim", (list, tuple))) or (op in ("max", "min") and given("dim", torch.Tensor)) \
            or (op.startswith("masked_fill") and given("value", torch.Tensor)) or (op == "narrow" and given("start", torch.Tensor)) \
            or (op in ("rsub", "rdiv") and given("other", torch.Tensor)) or (op == "topk" and given("k", list)):
        raise NotExpressible("an overload that is not here")
    if arguments.get("reduction") == "batchmean" or (op == "cross_entropy" and arguments["target"].is_floating_point()):
        raise NotExpressible("a form that is not here")
    if op in ("linspace", "arange", "eye") and "dtype" not in arguments:
        raise NotExpressible("no dtype")
    for x in tensors_in(arguments):
        if x.dtype not in KNOWN_DTYPES or x.dim() > 8:
            raise NotExpressible(str(x.dtype))
    return arguments


def op_db_cases(names, unexpressed):
    from torch.testing._internal.common_methods_invocations import op_db
    for name in names:
        for info in op_db:
            if info.name not in (OPS[name].op_db or []):
                continue
            for dtype in KNOWN_DTYPES:
                if dtype not in info.dtypes:
                    continue
                torch.manual_seed(0)
                samples = info.sample_inputs("cpu", dtype, requires_grad=dtype.is_floating_point and info.supports_autograd)
                for i, sample in enumerate(samples):
                    try:
                        yield Case(name, bound(name, sample), i)
                    except NotExpressible as why:
                        unexpressed[f"{name}: {why}"] += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix", help="of the files that are written")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="random cases")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--edges", type=float, default=0.35, metavar="P", help="the share of random cases at the edges")
    parser.add_argument("--op_db", action="store_true", help="PyTorch's own samples")
    parser.add_argument("--ops", help="only these, with commas")
    parser.add_argument("--why", action="store_true", help="list samples that cannot be expressed")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    names = options.ops.split(",") if options.ops else list(OPS)
    writer, tally, unexpressed = Writer(options.prefix), Counter(), Counter()
    cases = list(random_cases(options.random, options.seed, names, options.edges))
    for case in cases:
        tally["random, " + evaluate(case, writer)] += 1
    if options.op_db:
        for case in op_db_cases(names, unexpressed):
            try:
                tally["op_db, " + evaluate(case, writer)] += 1
            except NotExpressible as why:
                unexpressed[f"{case.op}: {why}"] += 1
    writer.close()
    print(", ".join(f"{count} {what}" for what, count in tally.items()), f"; {sum(unexpressed.values())} not expressible")
    if options.why:
        for what, count in unexpressed.most_common():
            print(count, what)


if __name__ == "__main__":
    main()
