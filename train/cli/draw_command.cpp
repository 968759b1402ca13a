// inkling draw: the ops of a training step, or of one op and its derivative, by module.
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autocast.h"
#include "autograd/engine/grad_store.h"
#include "autograd/io/foreign.h"
#include "train/cases/op_case_inputs.h"
#include "train/cli/command_line.h"
#include "train/cli/console.h"
#include "train/cli/model_options.h"
#include "train/cli/out_folder.h"
#include "train/flow/draw_flow.h"
#include "train/memory.h"
#include "train/trainer.h"

extern char** environ;

namespace ink {
namespace {

// ---- the ops

struct Drawn {
  std::string title;
  std::vector<FlowOp> ops;
};

constexpr int kRuns = 5;  // that are timed, after one to warm up

// The ops of a training step on random tokens, with the shortest of their times.
std::vector<FlowOp> ops_of_step(LanguageModel& model, const TrainConfig& config) {
  const FieldGuard composed_as(&Context::composed, config.composed);
  const FieldGuard recompute_as(&Context::recompute, config.recompute);
  const Autocast autocast_to(config.autocast());
  model.train();
  Generator generator(static_cast<uint64_t>(config.seed));
  const Shape shape{config.batch_size, config.block_size};
  const Device device = context().default_device;
  const Tensor x = randint(model.config.vocab_size, shape, i64, generator).to(device),
               y = randint(model.config.vocab_size, shape, i64, generator).to(device);
  Flow flow(model);
  const Observe observe(flow);
  std::vector<FlowOp> best;
  for (int run = 0; run <= kRuns; ++run) {
    flow.start();
    GradStore store;
    const Tensor loss = model.loss(x, y);
    flow.note_kept();
    backward(loss, store);
    if (run <= 1) best = flow.ops();  // replaces the run that warmed up
    for (size_t i = 0; i < best.size(); ++i) {
      best[i].forward_ms = std::min(best[i].forward_ms, flow.ops()[i].forward_ms);
      best[i].backward_ms = std::min(best[i].backward_ms, flow.ops()[i].backward_ms);
    }
  }
  return best;
}

// model: that of a run; null: a new one.
Drawn draw_step(const TrainConfig& config, std::unique_ptr<LanguageModel> model) {
  if (!model) {
    const int64_t vocab_size = make_dataset(config)->tokenizer().vocab_size();
    manual_seed(static_cast<uint64_t>(config.seed));
    model = make_model(config.model, config.gpt(vocab_size), config.model_settings);
  }
  check_memory("this step", kept_memory(*model, config).total());
  check_memory("this step", estimate_memory(*model, config).total());
  return {fmt::format("A training step of {} x {} tokens; {} parameters. Times are the best of {}.",
                      config.batch_size, config.block_size,
                      count_text(static_cast<double>(model->num_parameters())), kRuns),
          ops_of_step(*model, config)};
}

// The inputs of a row, and the gradient of its output, under names of their own.
struct Operands : Module {
  std::vector<std::pair<std::string, Parameter>> named;

  void add(const std::string& name, const Tensor& x) { named.emplace_back(name, x); }
  std::vector<Field> fields() override {
    std::vector<Field> list;
    for (auto& [name, x] : named) {
      list.emplace_back(x);
      list.back().name = name;
    }
    return list;
  }
};

// The row that is called `name`, or the first branch of such an op.
const OpCase& row_of(const std::string& name) {
  std::vector<std::string> names;
  for (const OpCase& row : op_cases()) {
    if (row.name == name) return row;
    names.push_back(row.name);
  }
  for (const OpCase& row : op_cases())
    if (row.name.rfind(name + ".", 0) == 0) return row;
  std::string hint = suggestion(name, names);
  for (const std::string& other : names)
    if (hint.empty() && other.find(name) != std::string::npos)
      hint = "; did you mean " + other.substr(0, other.find('.')) + "?";
  throw UsageError(
      fmt::format("expected the name of an op, such as softmax or layer_norm (gradcheck lists "
                  "them), got '{}'{}",
                  printable(name, 60), hint));
}

const std::vector<In>& set_of(const OpCase& row) {
  const auto found = std::find_if(row.inputs.begin(), row.inputs.end(), [](const auto& set) {
    return !differentiable(set).empty() && largest(set) > 0;
  });
  return found == row.inputs.end() ? row.inputs.front() : *found;
}

// An op forward, and its derivative as create_graph records it.
Drawn draw_op(const OpCase& row) {
  const std::vector<In>& set = set_of(row);
  const Inputs leaves = leaves_of(make_inputs(set), set);
  std::vector<Tensor> wanted;
  Operands operands;
  std::string shapes;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const std::string name = "x" + std::to_string(i);
    shapes += detail::text(i == 0 ? "" : ", ", name, " ", leaves[i].shape());
    if (!leaves[i].requires_grad()) continue;
    operands.add(name, leaves[i]);
    wanted.push_back(leaves[i]);
  }
  Outputs results;
  Grads dys;
  for (const Tensor& y : row.op(leaves)) {  // once, to learn the shapes
    if (!y.requires_grad()) continue;
    dys.push_back(ones(y.shape(), y.dtype()).requires_grad_());
    operands.add("dy" + std::to_string(dys.size() - 1), dys.back());
  }
  INK_CHECK(!dys.empty(), row.name, " has no derivative");
  Flow flow(operands);
  const Observe observe(flow);
  for (const Tensor& y : row.op(leaves))
    if (y.requires_grad()) results.push_back(y);
  flow.note_kept();
  const size_t forward = flow.ops().size();
  grad(results, wanted, dys, true, true);
  Drawn drawn{
      fmt::format("{} of {}.\nBelow it are the ops of its gradients; dy0 is the gradient of "
                  "its first output.\nThe file of autograd/ops that computes it begins with its "
                  "formula.",
                  row.name, shapes),
      flow.ops()};
  for (size_t i = 0; i < drawn.ops.size(); ++i)
    drawn.ops[i].module = i < forward ? "forward" : "backward";
  return drawn;
}

// ---- the picture

// An unnamed file that is deleted when it is closed.
struct Scratch {
  Scratch() : file(std::tmpfile()) { INK_CHECK(file, "cannot make a temporary file"); }
  ~Scratch() { std::fclose(file); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::FILE* file;
};

// What `dot -Tsvg` makes of a text. No shell is between.
std::string svg_by_dot(const std::string& dot) {
  const Scratch in, out;
  std::fwrite(dot.data(), 1, dot.size(), in.file);
  std::rewind(in.file);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(in.file), 0);
  posix_spawn_file_actions_adddup2(&actions, fileno(out.file), 1);
  std::string words[] = {"dot", "-Tsvg"};
  char* arguments[] = {words[0].data(), words[1].data(), nullptr};
  pid_t child = 0;
  const int failed = posix_spawnp(&child, "dot", &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  INK_CHECK(failed == 0,
            "expected Graphviz's program dot, which makes the picture, and there is none. "
            "Install it (apt install graphviz), or leave --out away to see text");
  int status = 0;
  uninterrupted([&] { return waitpid(child, &status, 0); });
  INK_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0,
            "expected dot to make a picture, and it failed");
  std::string svg;
  std::rewind(out.file);
  for (int c; (c = std::fgetc(out.file)) != EOF;) svg += static_cast<char>(c);
  return svg;
}

// For dark screens.
constexpr const char* kStyle = R"(
<style>
svg { background: #ffffff; }
@media (prefers-color-scheme: dark) {
  svg { background: #14171b; }
  [fill="#f6f8fa"] { fill: #1f242b; }
  [stroke="#a9b2bc"] { stroke: #56606b; }
  text[fill="#1b1f24"], .outside text { fill: #e8ebee; }
  text[fill="#5b6570"], .edge text { fill: #a0aab5; }
  text[fill="#0072b2"] { fill: #56b4e9; }
  text[fill="#b3451e"] { fill: #f0803c; }
  .edge path { stroke: #a0aab5; }
  .edge polygon { stroke: #a0aab5; fill: #a0aab5; }
}
</style>)";

std::string with_style(std::string svg) {
  const size_t begin = svg.find("<svg"), end = svg.find('>', begin);
  INK_CHECK(begin != std::string::npos && end != std::string::npos, "expected SVG from dot, got ",
            printable(svg, 60));
  return svg.insert(end + 1, kStyle);
}

// ---- the command

struct DrawCommand {
  std::string what = "step", name, out_dir, out;
  TrainConfig config;
  DrawOptions options;
};

// Settings of `train` that the ops of a step do not depend on.
// clang-format off
const std::set<std::string> kNoPartOfAStep = {
    "schedule", "decay_fraction", "ema", "z_loss", "dataset", "val_fraction", "pack",
    "gradient_accumulation_steps", "max_iters", "learning_rate", "lr_decay_iters", "min_lr",
    "warmup_iters", "optimizer", "beta1", "beta2", "momentum", "weight_decay", "grad_clip",
    "out_dir", "init_from", "data_changed", "max_minutes", "eval_interval", "eval_iters",
    "log_interval", "sample_interval", "batch_parts", "final_eval", "report",
    "shard_optimizer", "wire_dtype"};
// clang-format on
const char* const kOfTheModel[] = {"data",       "task_digits", "val_data", "tokenizer",
                                   "model",      "n_layer",     "n_head",   "n_embd",
                                   "block_size", "dropout",     "bias"};

bool read_options(const Arguments& arguments, DrawCommand& draw, bool first) {
  CommandOptions command("draw",
                         "Shows the ops of a training step by module: what each one reads, its "
                         "output, the memory that it keeps for backward, and its time.");
  command.add("--what", &draw.what,
              "step: the whole; block: one block of the model; op: an op of NAME with the ops of "
              "its derivative",
              {.shows_default = true, .limits = {.choices = {"step", "block", "op"}}});
  command.add("name", &draw.name, "of an op, for --what op: softmax");
  command.flag("--all", draw.options.all, "show each block, even if it repeats the one before");
  command.add(
      "--out", &draw.out,
      "write a picture to this file, as SVG; -: to standard output; by default text is shown");
  command.add("--out_dir", &draw.out_dir,
              "take the model and the settings of the run in this folder");
  command.add_fields(draw.config, kNoPartOfAStep);
  if (!command.parse(arguments, first)) return false;
  if ((draw.what == "op") != !draw.name.empty())
    throw UsageError("expected a name with --what op, and only there: draw --what op softmax");
  std::vector<std::string> of_the_model(std::begin(kOfTheModel), std::end(kOfTheModel));
  for (const ModelSetting& setting : draw.config.model_settings)
    of_the_model.push_back(setting.name);
  for (const std::string& option : of_the_model)
    if (!draw.out_dir.empty() && command.given("--" + option))
      throw UsageError(fmt::format("--out_dir names a model: --{} cannot change it", option));
  if (const std::string unused = unused_option(command, draw.config); !unused.empty())
    throw UsageError(unused);
  return true;
}

}  // namespace

int draw_command(const Arguments& arguments) {
  DrawCommand draw;
  if (!read_options(arguments, draw, true)) return kOk;
  const FieldGuard on_device(&Context::default_device, parsed_device(draw.config.device));
  if (!draw.out_dir.empty()) check_not_of_run("--out", draw.out_dir, draw.out);
  check_not_read("--out", draw.out, {draw.config.data.begin(), draw.config.data.end()});
  check_is_svg("--out", draw.out);
  check_writable("--out", draw.out);
  if (!draw.out.empty()) svg_by_dot("digraph {}");  // throws if there is no dot
  std::unique_ptr<LanguageModel> model;
  if (!draw.out_dir.empty()) {
    LoadedModel loaded = given_model(draw.out_dir);
    model = std::move(loaded.model);
    draw.config = loaded.config;
  }
  read_options(arguments, draw, false);  // which override the run's
  check_usage(draw.config);
  const Drawn drawn =
      draw.what == "op" ? draw_op(row_of(draw.name)) : draw_step(draw.config, std::move(model));
  if (draw.what == "block") {
    // The second one, if there is one: the first adds nothing in its first norm.
    std::string blocks;  // "h", "model.layers"
    const auto has = [&](const std::string& block) {
      return std::any_of(drawn.ops.begin(), drawn.ops.end(),
                         [&](const FlowOp& op) { return op.module.rfind(block, 0) == 0; });
    };
    for (const FlowOp& op : drawn.ops)
      if (const size_t at = op.module.find(".0."); blocks.empty() && at != std::string::npos)
        blocks = op.module.substr(0, at);
    INK_CHECK(!blocks.empty(), "draw: ", draw.config.model,
              " has no blocks; leave out --what block");
    draw.options.module = blocks + (has(blocks + ".1.") ? ".1" : ".0");
  }
  if (draw.out.empty()) {
    draw.options.columns = std::min(draw.options.columns, shown_columns());
    std::cout << filled(drawn.title, draw.options.columns, 0) << "\n\n"
              << print_flow(drawn.ops, draw.options);
    return kOk;
  }
  const std::string picture = with_style(svg_by_dot(flow_to_dot(drawn.ops, draw.options)));
  if (!is_stdout(draw.out)) std::cout << drawn.title << "\n";
  write_output("--out", draw.out, picture);
  return kOk;
}

}  // namespace ink
