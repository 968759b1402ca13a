"""Random programs of views, writes in place, saves and backward, with what PyTorch makes of them.

    python3 tests/parity/programs.py COUNT SEED > programs.txt
    INKLING_PROGRAMS=programs.txt build/release/tests/tests_autograd test_programs

Without INKLING_PROGRAMS, the test runs programs.txt of this folder: of 5000 programs the hundred
with most writes into views, a fifth of them refused by PyTorch. It was made by

    python3 tests/parity/programs.py 5000 1 --hardest 100 > tests/parity/programs.txt

A program is a line of instructions, separated by ';'. Tensors have numbers, from 0 on, in the order
in which instructions make them. The line ends in "=> refused N" (instruction N throws), or in
"=> ok" and the values of all tensors and the gradients of those that have one.
"""
import argparse
import random

import torch

SHAPES = [(3,), (2, 3), (3, 2), (2, 2, 3), (1, 3), (4,)]
# Programs that are left out, because we differ on purpose, or PyTorch's answer depends on chance:
# * operands that overlap: we copy them first; PyTorch refuses those that it finds, and computes others
#   in an order of its own;
# * uses, with grad mode on, of a view taken under no_grad of something in a graph: ours is a constant;
#   PyTorch refuses it, or says that it requires grad, depending on earlier writes;
# * a write into a view whose base was a constant when the view was taken and is in a graph now:
#   PyTorch takes the view for a leaf that requires grad, unless its grad_fn was looked at meanwhile;
# * the gradient of a view (retained, or by grad()) whose memory was written without the graph seeing
#   it: PyTorch takes the view for a new one then;
# * gradients by grad() that PyTorch refuses because of an overwritten tensor: we refuse only where that
#   tensor is needed for what is asked for;
# * gradients by grad() when a tensor retains its own: PyTorch adds to that, too;
# * recorded writes into views of a detached expanded tensor: we refuse them.
LEFT_OUT = ["some elements of the input tensor", "its base or another view of its base has been modified"]
STALE = "a leaf Variable that requires grad"


class Program:
    """Makes up instructions, and runs each in PyTorch as it goes."""

    def __init__(self, rng):
        self.rng = rng
        self.lines, self.tensors = [], []
        self.retained = set()
        self.cut_off = set()  # views taken under no_grad of something in a graph
        self.unseen_writes = set()  # memory that was, or may be, written outside the graph
        self.untracked = set()  # all views taken under no_grad
        self.target = None  # what the last write was to
        self.no_grad = False
        self.writes_into_views = 0

    def numbers(self, count):
        return [self.rng.choice([-1.5, -1, -0.5, 0.5, 1, 1.5, 2]) for _ in range(count)]

    def run(self, line, action):
        """True unless PyTorch refuses; the instruction is noted in any case."""
        self.lines.append(line)
        with torch.set_grad_enabled(not self.no_grad):
            made = action()
        if made is not None:
            self.tensors.append(made)

    def run_view(self, a, line, action):
        if a in self.cut_off or (self.no_grad and self.tensors[a].requires_grad):
            self.cut_off.add(len(self.tensors))
        if self.no_grad or a in self.untracked:
            self.untracked.add(len(self.tensors))
        self.run(line, action)

    def new(self):
        shape = self.rng.choice(SHAPES)
        values = self.numbers(torch.Size(shape).numel())
        leaf = self.rng.random() < 0.6
        text = f"{'leaf' if leaf else 'const'} {','.join(map(str, shape))} {','.join(map(str, values))}"
        self.run(text, lambda: torch.tensor(values, dtype=torch.float64).view(shape).clone().requires_grad_(leaf))

    def pick(self, test=lambda x: True):
        hidden = () if self.no_grad else self.cut_off
        found = [i for i, x in enumerate(self.tensors) if i not in hidden and test(x)]
        return self.rng.choice(found) if found else None

    def arithmetic(self):
        rng, t = self.rng, self.tensors
        kind = rng.choice(["add", "sub", "mul", "mul", "div", "exp", "sin", "tanh", "relu", "mulc", "addc",
                           "rdivc", "square", "sum0", "softmax", "clone", "same"])
        a = self.pick()
        x = t[a]
        if kind in ("add", "sub", "mul", "div"):
            b = self.pick(lambda y: broadcasts(x, y))
            y = t[b]
            f = {"add": lambda: x + y, "sub": lambda: x - y, "mul": lambda: x * y, "div": lambda: x / y}
            return self.run(f"{kind} {a} {b}", f[kind])
        if kind in ("mulc", "addc", "rdivc"):
            c = rng.choice([-2, 0.5, 3])
            f = {"mulc": lambda: x * c, "addc": lambda: x + c, "rdivc": lambda: c / x}
            return self.run(f"{kind} {a} {c}", f[kind])
        if kind == "sum0":
            a = self.pick(lambda y: y.dim() > 0)
            return self.run(f"sum0 {a}", lambda: t[a].sum(0))
        if kind == "softmax":
            a = self.pick(lambda y: y.dim() > 0)
            return self.run(f"softmax {a}", lambda: t[a].softmax(-1))
        f = {"exp": lambda: (x * 0.1).exp(), "sin": x.sin, "tanh": x.tanh, "relu": x.relu,
             "square": lambda: x**2, "clone": x.clone, "same": lambda: x}
        (self.run_view if kind == "same" else lambda _, *rest: self.run(*rest))(a, f"{kind} {a}", f[kind])

    def view(self):
        rng, t = self.rng, self.tensors
        a = self.pick(lambda y: y.dim() > 0)
        x = t[a]
        d = rng.randrange(x.dim())
        kind = rng.choice(["select", "select", "slice", "transpose", "flatten", "expand", "unsqueeze", "detach"])
        if kind == "select" and x.size(d):
            i = rng.randrange(x.size(d))
            self.run_view(a, f"select {a} {d} {i}", lambda: x.select(d, i))
        elif kind == "slice":
            start, step = rng.randrange(2), rng.choice([1, 1, 2])
            self.run_view(a, f"slice {a} {d} {start} {step}",
                     lambda: x[(slice(None),) * d + (slice(start, None, step),)])
        elif kind == "transpose":
            e = rng.randrange(x.dim())
            self.run_view(a, f"transpose {a} {d} {e}", lambda: x.transpose(d, e))
        elif kind == "flatten" and owner(x).is_contiguous():  # PyTorch's results may have permuted strides
            self.run_view(a, f"flatten {a}", lambda: x.reshape(-1))
        elif kind == "expand" and x.dim() < 3:
            self.run_view(a, f"expand {a} 2", lambda: x.expand((2, *x.shape)))
        elif kind == "unsqueeze" and x.dim() < 3:
            self.run_view(a, f"unsqueeze {a} {d}", lambda: x.unsqueeze(d))
        elif kind == "detach" and not any(memory(x) == memory(t[i]) for i in self.retained):
            self.unseen_writes.add(memory(x))
            self.run(f"detach {a}", x.detach)

    def write(self):
        rng, t = self.rng, self.tensors
        plain = lambda y: y.numel() > 0 and not repeats(y)  # PyTorch lets fills of others pass
        kind = rng.choice(["add_", "sub_", "mul_", "mul_", "div_", "copy_", "copy_", "fill_", "addc_", "mulc_", "mask_",
                           "put_", "put_acc_"])
        # Most writes into leaves are left out, because a refusal ends the program.
        refusals = self.no_grad or rng.random() < 0.03
        a = self.pick(lambda y: (refusals or not of_a_leaf(y)) and (kind not in ("fill_", "mask_") or plain(y)))
        if a is None:
            return
        x = self.target = t[a]
        if x._is_view():
            self.writes_into_views += 1
        if repeats(owner(x)) or (self.no_grad and any(memory(x) == memory(self.tensors[i]) for i in self.retained)):
            return
        if self.no_grad:
            self.unseen_writes.add(memory(x))
        if kind in ("add_", "sub_", "mul_", "div_", "copy_"):
            b = self.pick(lambda y: broadcasts_to(y, x))
            y = t[b]
            same_memory = memory(x) == memory(y)
            same_places = (x.shape, x.stride(), x.storage_offset()) == (y.shape, y.stride(), y.storage_offset())
            if x is y and repeats(x):
                return
            if same_memory and x is not y and not (same_places and kind != "copy_"):
                raise RuntimeError(LEFT_OUT[0])  # which PyTorch does not always find
            f = {"add_": x.add_, "sub_": x.sub_, "mul_": x.mul_, "div_": x.div_, "copy_": x.copy_}[kind]
            return self.run(f"{kind} {a} {b}", lambda: nothing(f(y)))
        if kind in ("put_", "put_acc_"):
            if x.dim() == 0 or x.size(0) == 0 or not plain(x):
                return
            count = rng.randrange(1, 3) if kind == "put_acc_" else 1  # of repeated ids, any may win
            ids = [rng.randrange(x.size(0)) for _ in range(count)]
            b = self.pick(lambda y: broadcasts_to(y, x[ids]) and memory(y) != memory(x))
            if b is None:
                return
            put = lambda: nothing(x.index_put_([torch.tensor(ids)], t[b], kind == "put_acc_"))
            return self.run(f"{kind} {a} {b} {','.join(map(str, ids))}", put)
        c = rng.choice([-2, 0.5, 3])
        f = {"addc_": lambda: x.add_(c), "mulc_": lambda: x.mul_(c), "fill_": lambda: x.fill_(c),
             "mask_": lambda: x.masked_fill_(x.detach().clone() > 0, c)}[kind]
        self.run(f"{kind} {a} {c}", lambda: nothing(f()))

    def backward(self):
        a = self.pick(lambda y: y.requires_grad)
        if a is None or a in self.untracked:
            return
        x = self.tensors[a]
        weights = torch.arange(1, x.numel() + 1, dtype=torch.float64).view(x.shape)
        self.run(f"backward {a}", lambda: (x * weights).sum().backward(retain_graph=True))

    def grad(self):
        """A gradient that is a value of the program from now on, and can be differentiated again."""
        a = self.pick(lambda y: y.requires_grad)
        b = self.pick(lambda y: y.requires_grad)
        if a is None or self.no_grad or self.retained or a in self.untracked or b in self.untracked:
            return
        if self.tensors[b]._is_view() and memory(self.tensors[b]) in self.unseen_writes:
            return
        x, y, count = self.tensors[a], self.tensors[b], len(self.tensors)
        weights = torch.arange(1, x.numel() + 1, dtype=torch.float64).view(x.shape)

        def gradient():
            g = torch.autograd.grad((x * x * weights).sum(), y, create_graph=True, allow_unused=True)[0]
            return g.clone() if g is not None and repeats(g) else g  # ours can always be written

        try:
            self.run(f"dgrad {a} {b}", gradient)
        except RuntimeError as error:
            raise RuntimeError(LEFT_OUT[0]) from error  # it looks at all that was saved, we at what is needed
        if len(self.tensors) == count:
            self.lines.pop()  # x does not depend on y

    def retain(self):
        a = self.pick(lambda y: y.requires_grad and not y.is_leaf)
        if a is None or a in self.untracked or self.no_grad:
            return
        if not self.tensors[a]._is_view() or memory(self.tensors[a]) not in self.unseen_writes:
            self.retained.add(a)
            self.run(f"retain {a}", self.tensors[a].retain_grad)

    def step(self):
        kind = self.rng.choices(["new", "arithmetic", "view", "write", "backward", "grad", "retain", "mode"],
                                [1, 5, 6, 6, 0.5, 0.5, 0.5, 0.4])[0]
        if kind == "mode":
            self.no_grad = not self.no_grad
            self.lines.append("no_grad" if self.no_grad else "grad")
        else:
            getattr(self, kind)()


def owner(x):
    return x._base if x._is_view() else x


def memory(x):
    return x.untyped_storage().data_ptr()


def of_a_leaf(x):
    return owner(x).is_leaf and owner(x).requires_grad


def repeats(x):
    return any(stride == 0 and size > 1 for stride, size in zip(x.stride(), x.shape))


def nothing(_):
    return None


def broadcasts(x, y):
    try:
        torch.broadcast_shapes(x.shape, y.shape)
        return True
    except RuntimeError:
        return False


def broadcasts_to(y, x):
    return broadcasts(x, y) and torch.broadcast_shapes(x.shape, y.shape) == x.shape


def numbers(x):
    return ",".join(repr(v) for v in x.detach().reshape(-1).tolist())


def make(rng):
    """A program's line, and how hard it is; None if PyTorch cannot judge it."""
    program = Program(rng)
    program.new()
    program.new()
    try:
        for _ in range(rng.randrange(6, 22)):
            program.step()
        program.no_grad = False
        program.lines.append("grad")
        program.backward()
        leaves = [i for i, x in enumerate(program.tensors) if x.is_leaf or i in program.retained]
    except RuntimeError as error:
        stale = str(error).startswith(STALE) and program.target._is_view()
        if stale or any(text in str(error) for text in LEFT_OUT):
            return None
        return f"{'; '.join(program.lines)} => refused {len(program.lines) - 1}", program.writes_into_views
    results = [f"{i}:{numbers(x)}" for i, x in enumerate(program.tensors)]
    for i in leaves:
        if program.tensors[i].grad is not None:
            results.append(f"g{i}:{numbers(program.tensors[i].grad)}")
    values = program.tensors + [program.tensors[i].grad for i in leaves if program.tensors[i].grad is not None]
    if any(not torch.isfinite(x).all() or x.abs().max() > 1e6 for x in values if x.numel()):
        return None
    return f"{'; '.join(program.lines)} => ok {' '.join(results)}", program.writes_into_views


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--hardest", type=int, help="only so many: those with most writes into views")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    made = []
    while len(made) < options.count:
        if program := make(rng):
            made.append(program)
    if options.hardest:
        made.sort(key=lambda entry: -entry[1])
        ok = [entry for entry in made if "=> ok" in entry[0]]
        refused = [entry for entry in made if "=> refused" in entry[0]]
        made = ok[:options.hardest * 4 // 5] + refused[:options.hardest // 5]
    for line, _ in made:
        print(line)


if __name__ == "__main__":
    main()
