"""Where inkling differs from PyTorch on purpose: each row with its reason.

A row is (reason, test): test(case) says which checks of a case it lifts: "case" (all), or some of "value",
"dtype", "grad", "second", "grad_fn", "text", "error"; "grad~" lifts only elements where one of both
answers is not finite. It sees case.op, case.arguments, case.tensors (all that are among them),
case.error (PyTorch's text, or None) and case.outputs.
"""
import math

import torch

BF16 = torch.bfloat16


def has(case, dtype):
    return any(x.dtype == dtype for x in case.tensors)


def floats(case):
    return [x for x in case.tensors if x.dtype.is_floating_point and x.numel()]


def finite(case):
    return all(x.isfinite().all() for x in floats(case))


def beyond(case, low, high):
    """Is a number, other than 0, so small or large that products of two leave what f32 holds?"""
    numbers = [torch.tensor(float(v)) for v in case.arguments.values() if isinstance(v, (int, float))]
    return not finite(case) or any(((x.abs() > high) | ((x.abs() < low) & (x != 0))).any()
                                   for x in (x.detach().double() for x in floats(case) + numbers))


def extreme(case):
    return beyond(case, 1e-15, 1e15)


def constant_rows(case):
    """Does an op take the deviations of numbers that are equal?"""
    x = case.arguments["input"].detach()
    if case.error or x.numel() == 0:
        return False
    if case.op == "group_norm":
        rows = x.reshape(x.shape[0] * case.arguments["num_groups"], -1)
    elif case.op == "layer_norm":
        rows = x.reshape(-1, math.prod(case.arguments["normalized_shape"]))
    else:
        dims = case.arguments.get("dim")
        dims = [dims] if isinstance(dims, int) else list(dims or range(x.dim()))
        dims = [d % max(x.dim(), 1) for d in dims if x.dim()]
        rest = [d for d in range(x.dim()) if d not in dims]
        rows = x.permute(rest + dims).reshape(math.prod(x.shape[d] for d in rest), -1)
    return bool((rows.amax(1) - rows.amin(1) < 1e-6 * (1 + rows.abs().amax(1))).any())


def ids_twice(case):
    """Does index_put write one place twice?"""
    x, ids = case.arguments["input"], case.arguments["indices"]
    if case.error or x.numel() == 0 or case.arguments.get("accumulate"):
        return False
    places = torch.arange(x.numel()).reshape(x.shape)[tuple(ids)]
    return places.unique().numel() < places.numel()


def ties(case):
    return case.tensors[0].unique().numel() < case.tensors[0].numel()


FACTORS = ("linear", "matmul", "bmm", "einsum", "gelu", "elu", "remainder", "div", "div_", "prod", "cumprod")
NORMS = ("var", "std", "var_mean", "norm", "layer_norm", "rms_norm", "group_norm")
ROWS = [
    # ---- what is refused
    ("PyTorch has no kernel for the dtype; we compute",
     lambda c: "case" if c.error and any(t in c.error for t in ("not implemented for", "not supported for", "does not support bool"))
     else None),
    ("an empty list of dims means all of them, as no list does",
     lambda c: None if list(c.arguments.get("dim", [0]) if isinstance(c.arguments.get("dim"), (list, tuple)) else [0]) else "case" if any(x.dim() for x in c.tensors) else "grad_fn"),
    ("products of nothing: PyTorch does not look at the dtypes then",
     lambda c: "case" if c.op in ("matmul", "bmm") and len({x.dtype for x in c.tensors}) > 1 and any(x.numel() == 0 for x in c.tensors) else None),
    ("ids beyond a tensor without elements, or for a result without: PyTorch does not look at them",
     lambda c: "case" if c.op in ("index", "index_put", "index_put_")
     and (c.arguments["input"].numel() == 0 or any(y.numel() == 0 for y in c.outputs)) else None),
    # ---- random numbers
    ("dropout draws its own masks, which depend on no thread (ImitateTorch draws PyTorch's)",
     lambda c: "case" if c.arguments.get("dropout_p") else None),
    ("multinomial divides in f32 where PyTorch does in bf16, and draws in row-major order, not in that of the memory",
     lambda c: "value text" if c.op == "multinomial" and (has(c, BF16) or not c.tensors[0].is_contiguous()) else None),
    # ---- names
    ("the ops that PyTorch makes attention of nothing of; it checks no mask then",
     lambda c: ("case" if "attn_mask" in c.arguments else "grad_fn")
     if c.op == "scaled_dot_product_attention" and any(x.numel() == 0 for x in c.tensors) else None),
    ("einsum and x[..., i] are made of other ops", lambda c: "grad_fn" if c.op == "einsum" or "indices" in c.arguments
     and any(i is Ellipsis for i in c.arguments["indices"]) else None),
    ("diag of a matrix: PyTorch calls it DiagonalBackward0_copy", lambda c: "grad_fn" if c.op == "diag" and c.arguments["input"].dim() == 2 else None),
    ("rms_norm of a permuted input: PyTorch ends with a copy",
     lambda c: "grad_fn" if c.op == "rms_norm" and not c.arguments["input"].is_contiguous() else None),
    # ---- several answers are right
    ("of equals, topk takes the first", lambda c: "value grad second text" if c.op == "topk" and ties(c) else None),
    ("where ids come twice, the value that stays gets the gradient; PyTorch gives it to all of them",
     lambda c: "grad second" if c.op.startswith("index_put") and ids_twice(c) else None),
    ("a query that may see nothing, and a key that no query may see, have no influence, be they NaN or infinite; "
     "what a hidden key has does not reach the scores of those that do not see it",
     lambda c: "value text grad second" if c.op == "scaled_dot_product_attention" and not finite(c) else None),
    ("the mean over no target is NaN, and so is its gradient",
     lambda c: "grad second" if c.op in ("nll_loss", "cross_entropy") and (c.arguments["target"] == c.arguments.get("ignore_index", -100)).all()
     else None),
    ("logits of an ignored target reach nobody, be they NaN or infinite",
     lambda c: "grad~ second~" if c.op == "cross_entropy" and (c.arguments["target"] == c.arguments.get("ignore_index", -100)).any() else None),
    ("kl_div's gradient of a target of 0 is the limit of what is around it; PyTorch's is NaN",
     lambda c: "grad~ second~" if c.op == "kl_div" and not c.arguments["log_target"] and (c.arguments["target"] == 0).any() else None),
    # ---- the ends of what a dtype holds
    ("numbers whose products leave what f32 holds: the order of the factors decides whether an infinity or a NaN appears",
     lambda c: None if not extreme(c) else "value~ text grad~ second~" if c.op in FACTORS else "second~"),
    ("of numbers whose squares overflow f32, norms and var are computed in f64",
     lambda c: "value grad second text" if c.op in NORMS and beyond(c, 0, 1e15) else None),
    ("second gradients whose terms cancel, or underflow, among such numbers",
     lambda c: "second" if c.op in (*NORMS, "prod", "cumprod", "scaled_dot_product_attention") and extreme(c) else None),
    ("deviations of equal numbers: what is left of them is rounding",
     lambda c: "grad second" if c.op in ("group_norm", "layer_norm", "std") and constant_rows(c) else None),
    ("pow_ in another dtype than its tensor's: the gradient is that of the result before it overflows",
     lambda c: "grad second" if c.op == "pow_" and len({x.dtype for x in c.tensors}) > 1 and any(x.isinf().any() for x in c.outputs) else None),
    # ---- what PyTorch's second gradients leave out, or where they divide by 0
    ("layer_norm of a constant: PyTorch's second gradients lack it",
     lambda c: "second" if c.op == "layer_norm" and not c.arguments["input"].requires_grad else None),
    ("binary_cross_entropy: PyTorch adds 1e-12 to p and 1 - p in second gradients",
     lambda c: "second" if c.op == "binary_cross_entropy" else None),
    ("smooth_l1_loss at a NaN: PyTorch's second gradient is 0",
     lambda c: "second" if c.op == "smooth_l1_loss" and not finite(c) else None),
    ("cumprod beside a 0, and p-norms of nothing, beside a 0, or of p = 0 or infinity: PyTorch's second gradients divide by 0",
     lambda c: "second" if c.op in ("cumprod", "norm")
     and (any((x == 0).any() for x in floats(c)) or c.arguments.get("p", 2) in (0, math.inf, -math.inf) or not floats(c)) else None),
]


def lifted(case):
    """The checks that some row lifts."""
    found = set()
    for _, test in ROWS:
        checks = test(case)
        if checks:
            found.update(checks.split())
    return found
