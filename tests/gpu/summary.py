"""summary.md and summary.json from what the parts of run.py found."""

import datetime
import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def commit():
    try:
        done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    except OSError:  # there is no git
        return "unknown"
    return done.stdout.strip() or "unknown"


def write(results, out):
    results["commit"] = commit()
    results["date"] = f"{datetime.datetime.now():%Y-%m-%d %H:%M}"
    results["goals"] = goals(results["parts"])
    (out / "summary.json").write_text(json.dumps(results, indent=1) + "\n")
    lines = ["# inkling on a GPU", "", f"* {results['date']}; commit {results['commit']}", f"* {results['device']}", ""]
    if results["small"]:
        lines += ["**Tiny sizes, to try the scripts: no number here means anything.**", ""]
    lines += table(["part", "result", "seconds", "of", "why"], [part_row(item) for item in results["parts"].items()])
    lines += ["", "## Goals", "", "For an H200; a limit is what such a card could do at best.", ""]
    lines += table(["what", "goal", "limit", "measured", ""], [goal_row(goal) for goal in results["goals"]])
    for name, describe in SECTIONS.items():
        if name in results["parts"]:
            lines += ["", *describe(results["parts"][name])]
    (out / "summary.md").write_text("\n".join(lines) + "\n")


WORDS = ("", "part", "result", "why", "what", "program", "did not end well", "tool")  # columns of words, not numbers


def table(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "|" + "".join(" --- |" if name in WORDS else " --: |" for name in columns)]
    return lines + ["| " + " | ".join(str(cell).replace("|", "/") for cell in row) + " |" for row in rows]


def part_row(item):
    name, part = item
    return [name, part["status"], f"{part['seconds']:.0f}", f"{part['budget']:.0f}", part["note"][:600]]


# ---- goals


def goal(what, text, measured, met, limit=""):
    return {"what": what, "goal": text, "limit": limit, "measured": measured, "met": met}


def goal_row(one):
    met = {True: "met", False: "**missed**", None: "not measured"}[one["met"]]
    return [one["what"], one["goal"], one["limit"], one["measured"], met]


def at_least(what, wanted, value, form, limit=""):
    return goal(what, ">= " + form.format(wanted), form.format(value) if value else "", value >= wanted if value else None, limit)


def at_most(what, wanted, value, form, limit=""):
    return goal(what, "<= " + form.format(wanted), form.format(value) if value else "", value <= wanted if value else None, limit)


def goals(parts):
    return [*goals_right(parts), *goals_step(parts), *goals_attention(parts), *goals_kernels(parts)]


def goals_right(parts):
    programs = parts.get("tests", {}).get("programs", {})
    failed = sum(len(one["failed"]) + len(one["ended"]) for one in programs.values())
    passed = sum(one["passed"] for one in programs.values())
    text = f"{failed} failed, {passed} passed" if programs else ""
    found = [goal("device tests", "none fails", text, failed == 0 and passed > 0 if programs else None)]
    curves = parts.get("tests", {}).get("curves", {})
    for name, what in (("cpu", "losses of 100 steps, f32, GPU and CPU"), ("bf16", "losses of 500 steps, bf16 and f32, means of ten")):
        one = curves.get(name)
        text = f"{one['apart']:.1e} apart, {one['losses']} steps" if one else ""
        found.append(goal(what, "1e-4 apart" if name == "cpu" else "1 % apart", text, one["apart"] <= one["most"] if one else None))
    for tool, one in parts.get("sanitizer", {}).get("tools", {}).items():
        text = f"{one['findings']} findings, {one['tests']} of {one['wanted']} tests"
        whole = one["tests"] >= one["wanted"] > 0
        found.append(goal(tool, "no findings", text, False if one["findings"] else True if whole else None))
    return found


def contender(parts, config, dtype):
    """(inkling's result, milliseconds of PyTorch's best) side by side on a config."""
    result = parts.get("pytorch", {}).get("configs", {}).get(config, {})
    ours = [row for row in result.get("contenders", []) if row["name"].startswith("inkling") and row["dtype"] == dtype]
    ours = ours[0] if ours and not ours[0]["failure"] else None
    return ours, result.get("pytorch_best_ms", {}).get(dtype)


def bench_row(parts, name):
    row = parts.get("bench", {}).get("rows", {}).get(name, {})
    return {} if "failure" in row else row


def goals_step(parts):
    found = []
    for what, name, config, dtype, wanted, limit, ratio in (
        ("nanoGPT baby, f32", "baby f32", "baby", "f32", 0.25, "0.1 ms", 3),
        ("nanoGPT char, bf16, dropout 0.2", "char bf16", "char_dropout", "bf16", 2.8, "2.0 ms", 2),
    ):
        ours, best = contender(parts, config, dtype)
        found.append(at_most(what, wanted, bench_row(parts, name).get("ms_median"), "{:.3g} ms", limit))
        found.append(at_least(f"{what}: PyTorch's best takes", ratio, best / ours["ms_median"] if ours and best else None, "{:.2f} x"))
    rows = [bench_row(parts, f"gpt2 bf16 {size}") for size in ("B32 V50257", "B32 V50304", "B64 V50304")]
    fastest = max((row.get("tokens_per_second", 0) for row in rows), default=0)
    found.append(at_least("GPT-2 124M, bf16, T 1024", 680_000, fastest, "{:,.0f} tokens/s", "850,000"))
    for config in ("gpt2_b32", "gpt2_b32_50304"):
        ours, best = contender(parts, config, "bf16")
        found.append(at_least(f"{config}: PyTorch's best takes", 1.2, best / ours["ms_median"] if ours and best else None, "{:.2f} x"))
    peak = rows[2].get("allocator_peak", 0) / 1e9
    return [*found, at_most("memory of GPT-2 at B 64, T 1024", 21, peak, "{:.1f} GB")]


def goals_attention(parts):
    rows = {name: row for name, row in parts.get("attention", {}).get("rows", {}).items() if "failure" not in row}
    ours, theirs = rows.get("inkling"), [row for name, row in rows.items() if name != "inkling"]
    found = []
    for phase, wanted in (("forward", 290), ("backward", 250)):
        rate = ours[f"{phase}_tflops"] if ours else None
        best = max((row[f"{phase}_tflops"] for row in theirs), default=0)
        found.append(at_least(f"attention {phase}", wanted, rate, "{:.0f} TFLOP/s"))
        found.append(at_least(f"attention {phase}, to PyTorch's best (mma kernel: 0.6)", 1.0, rate / best if rate and best else None, "{:.2f} x"))
    return found


def goals_kernels(parts):
    rows = parts.get("kernels", {}).get("rows", {})
    of = lambda name: rows.get(name, {}).get("of_roof")  # noqa: E731
    return [
        at_least("layer_norm forward, of the bandwidth", 0.85, of("gpt/gpt2_1024/layer_norm/forward bfloat16"), "{:.2f}"),
        at_least("AdamW, of the bandwidth", 0.9, of("gpt/gpt2_1024/AdamW bfloat16"), "{:.2f}"),
    ]


# ---- sections


def section_tests(part):
    lines = ["## Device tests", ""]
    rows = [[name, r["passed"], len(r["skipped"]), len(r["failed"]), "; ".join(r["ended"])] for name, r in part.get("programs", {}).items()]
    lines += table(["program", "passed", "skipped", "failed", "did not end well"], rows)
    for name, result in part.get("programs", {}).items():
        lines += [f"* {name}: {test}" for test in result["failed"][:40]]
    return lines


def section_sanitizer(part):
    rows = [[tool, r["findings"], r["codes"], f"{r['tests']} of {r['wanted']}"] for tool, r in part.get("tools", {}).items()]
    lines = ["## compute-sanitizer", "", *table(["tool", "findings", "exit codes", "tests"], rows)]
    for tool, result in part.get("tools", {}).items():
        lines += [f"* {tool}: `{line}`" for line in result["first"]]
    return lines


def section_bench(part):
    lines = ["## Training steps", ""]
    lines += ["MFU: FLOPs of a step (6 x weights x tokens, and causal attention) a second, of the data sheet's dense bf16 FLOP/s.", ""]
    rows = []
    for name, r in part.get("rows", {}).items():
        if "failure" in r:
            rows.append([name, r["failure"], "", "", "", "", ""])
            continue
        times = [f"{r['ms_median']:.3f}", f"{r['ms_best']:.3f}", f"{r['tokens_per_second']:,.0f}"]
        mfu = f"{100 * r['mfu']:.1f} %" if r["mfu"] else ""
        rows.append([name, *times, mfu, f"{r['allocator_peak'] / 1e6:,.0f}", f"{r['formula'] / 1e6:,.0f}"])
    return lines + table(["", "ms median", "ms best", "tokens/s", "MFU", "peak memory, MB", "by formula"], rows)


def section_kernels(part):
    lines = ["## Kernels", ""]
    for dtype in ("bfloat16", "float32"):
        machine = part.get(f"machine {dtype}")
        if machine and machine["flops_per_second"]:
            flops, rate = float(machine["flops_per_second"]) / 1e12, float(machine["bytes_per_second"]) / 1e12
            lines.append(f"* roof in {dtype}: {flops:.0f} TFLOP/s (a large product), {rate:.2f} TB/s (a copy)")
    lines += ["", "Without the rows op/..., of which the launch is most; they are in summary.json.", ""]
    rows = []
    for name, r in part.get("rows", {}).items():
        if name.startswith("op/"):
            continue
        if "failure" in r:
            rows.append([name, r["failure"], "", "", ""])
            continue
        flops = f"{r['flops'] / 1e12:.1f}" if r["flops"] else ""
        rate = f"{r['bytes'] / 1e12:.2f}" if r["bytes"] else ""
        rows.append([name, f"{r['us']:.1f}", flops, rate, f"{100 * r['of_roof']:.0f} %" if r["of_roof"] else ""])
    return lines + table(["", "us", "TFLOP/s", "TB/s", "of the roof"], rows)


def section_attention(part):
    sizes = part.get("sizes", {})
    lines = ["## Attention beside PyTorch's", "", f"Causal, bf16: {', '.join(f'{k} {v}' for k, v in sizes.items())}.", ""]
    rows = []
    for name, r in part.get("rows", {}).items():
        if "failure" in r:
            rows.append([name, r["failure"][:120], "", "", ""])
        else:
            numbers = (r["forward_ms"], r["forward_tflops"], r["backward_ms"], r["backward_tflops"])
            rows.append([name, *(f"{number:.3g}" for number in numbers)])
    return lines + table(["", "forward, ms", "TFLOP/s", "backward, ms", "TFLOP/s"], rows)


def section_programs(part):
    return part.get("table", "# Small programs beside PyTorch\n\nThere are none.").rstrip().replace("# Small", "## Small", 1).split("\n")


def section_pytorch(part):
    return part.get("tables", "# Training steps beside PyTorch\n\nThere are none.").rstrip().replace("\n## ", "\n### ").replace("# Training", "## Training", 1).split("\n")


SECTIONS = {
    "tests": section_tests,
    "sanitizer": section_sanitizer,
    "bench": section_bench,
    "kernels": section_kernels,
    "attention": section_attention,
    "programs": section_programs,
    "pytorch": section_pytorch,
}
