"""Where inkling differs from PyTorch on purpose: each row with its reason.

A row is (reason, test): test(case) says which checks of a case it lifts: "case" (all), or some of "value",
"dtype", "grad", "second", "grad_fn", "text", "error". It sees case.op, case.arguments, case.tensors (all
that are among them), case.error (PyTorch's text, or None) and case.outputs.
"""
import torch

BF16 = torch.bfloat16


def has(case, dtype):
    return any(x.dtype == dtype for x in case.tensors)


def finite(case):
    return all(x.isfinite().all() for x in case.tensors if x.dtype.is_floating_point)


def huge(case):
    """Is a number infinite, or so large that a product of two overflows f32?"""
    return any(x.abs().max() > 1e15 for x in case.tensors if x.numel() and x.dtype.is_floating_point) or not finite(case)


def equal_group(case):
    """Is a group of a group_norm made of equal numbers?"""
    x = case.arguments["input"]
    if x.numel() == 0:
        return False
    rows = x.reshape(x.shape[0] * case.arguments["num_groups"], -1)
    return bool((rows.amax(1) - rows.amin(1) < 1e-6).any())


def ties(case):
    return case.tensors[0].unique().numel() < case.tensors[0].numel()


ROWS = [
    ("PyTorch has no kernel for the dtype; we compute",
     lambda c: "case" if c.error and any(t in c.error for t in ("not implemented for", "not supported for", "does not support bool"))
     else None),
    ("an empty list of dims means all of them, as no list does",
     lambda c: None if list(c.arguments.get("dim", [0]) if isinstance(c.arguments.get("dim"), (list, tuple)) else [0]) else "case" if any(x.dim() for x in c.tensors) else "grad_fn"),
    ("the second derivative at an infinity or NaN, where the order of the factors decides",
     lambda c: None if finite(c) else "second"),
    ("dropout draws its own masks, which depend on no thread (ImitateTorch draws PyTorch's)",
     lambda c: "case" if c.arguments.get("dropout_p") else None),
    ("the ops that PyTorch makes attention of nothing of; it checks no mask then",
     lambda c: ("case" if "attn_mask" in c.arguments else "grad_fn")
     if c.op == "scaled_dot_product_attention" and any(x.numel() == 0 for x in c.tensors) else None),
    ("multinomial divides in f32 where PyTorch does in bf16, and draws in row-major order, not in that of the memory",
     lambda c: "value text" if c.op == "multinomial" and (has(c, BF16) or not c.tensors[0].is_contiguous()) else None),
    ("of numbers whose squares overflow f32, norms and var are computed in f64",
     lambda c: "value grad second text" if c.op in ("var", "std", "var_mean", "norm", "layer_norm", "rms_norm", "group_norm")
     and any(x.nan_to_num().abs().max() > 1e15 for x in c.tensors if x.numel()) else None),
    ("products of nothing: PyTorch does not look at the dtypes then",
     lambda c: "case" if c.op in ("matmul", "bmm") and len({x.dtype for x in c.tensors}) > 1 and any(x.numel() == 0 for x in c.tensors) else None),
    ("of equals, topk takes the first", lambda c: "value grad second text" if c.op == "topk" and ties(c) else None),
    ("einsum and x[..., i] are made of other ops", lambda c: "grad_fn" if c.op == "einsum" or "indices" in c.arguments
     and any(i is Ellipsis for i in c.arguments["indices"]) else None),
    ("kl_div's gradient of a target of 0 is the limit of what is around it; PyTorch's is NaN",
     lambda c: "grad second" if c.op == "kl_div" and not c.arguments["log_target"] else None),
    ("gradients where an infinity meets a 0", lambda c: "grad second" if c.op in ("remainder", "prod", "cumprod", "smooth_l1_loss") and not finite(c)
     else "second" if c.op in ("prod", "cumprod") and huge(c) else None),
    ("pow_ in another dtype than its tensor's: the gradient is that of the result before it overflows",
     lambda c: "grad second" if c.op == "pow_" and len({x.dtype for x in c.tensors}) > 1 and any(x.isinf().any() for x in c.outputs) else None),
    ("ids beyond a tensor without elements: PyTorch does not look at them",
     lambda c: "case" if c.op in ("index", "index_put", "index_put_") and c.arguments["input"].numel() == 0 else None),
    ("gelu and elu at an infinity or NaN, where PyTorch's vectors differ from its single numbers",
     lambda c: "value grad text" if c.op in ("gelu", "elu") and not finite(c) else None),
    ("the mean over no target is NaN, and so is its gradient",
     lambda c: "grad second" if c.op in ("nll_loss", "cross_entropy") and (c.arguments["target"] == c.arguments.get("ignore_index", -100)).all()
     else None),
    ("second gradients that PyTorch leaves out, or where it divides by 0: layer_norm of a constant, p-norms, cumprod beside a 0",
     lambda c: "second" if (c.op == "layer_norm" and not c.arguments["input"].requires_grad)
     or c.op == "cumprod" or (c.op == "norm" and (c.arguments.get("p", 2) not in (1, 2) or not c.outputs or (c.outputs[0] == 0).any()))
     else None),
    ("second gradients of group_norm of equal numbers: PyTorch's cancel, and what is left is rounding",
     lambda c: "second" if c.op == "group_norm" and not c.error and equal_group(c) else None),
    ("rms_norm of a permuted input: PyTorch ends with a copy",
     lambda c: "grad_fn" if c.op == "rms_norm" and not c.arguments["input"].is_contiguous() else None),
    ("where ids come twice, the value that stays gets the gradient; PyTorch gives it to all of them",
     lambda c: "grad second" if c.op.startswith("index_put") and not c.arguments.get("accumulate") else None),
    ("a key that a query may not see has no influence, be it NaN or infinite",
     lambda c: "value text grad second" if c.op == "scaled_dot_product_attention" and not finite(c) else None),
]


def lifted(case):
    """The checks that some row lifts."""
    found = set()
    for _, test in ROWS:
        checks = test(case)
        if checks:
            found.update(checks.split())
    return found
