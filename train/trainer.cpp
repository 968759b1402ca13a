#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <tuple>
#include <typeinfo>
#include <utility>

#include "autograd/base/parallel.h"
#include "autograd/engine/observer.h"
#include "autograd/inspect/nan_sentinel.h"
#include "autograd/io/foreign.h"
#include "autograd/io/log.h"
#include "autograd/memory/device_backend.h"
#include "autograd/memory/storage.h"
#include "autograd/random/generator.h"
#include "data/splitmix.h"
#include "nn/gpt.h"
#include "train/checkpoint.h"
#include "train/muon.h"
#include "train/parallel/nccl.h"
#include "train/parallel/parts.h"
#include "train/parallel/shards.h"
#include "train/parallel/together.h"

namespace ink {
namespace {

// The run that a config resumes, or begins with the weights of, if any.
std::optional<SavedRun> saved_run(const TrainConfig& config) {
  for (const char* name : {kLastCheckpoint, kBestCheckpoint})
    INK_CHECK(config.init_from == "resume" || !checkpoint_exists(config.out_dir, name),
              "Trainer: out_dir ", printable(config.out_dir, 200),
              " holds a run, which a new one would replace; go on with it by init_from = "
              "\"resume\", or choose another out_dir");
  if (config.init_from == "scratch") return {};
  if (config.init_from != "resume") return load_start(config);
  return load_run_to_resume(config.out_dir);
}

// A step asks a loss for sums over targets, and divides by their number; so does an evaluation.
// Throws if a model's own loss takes no notice of its reduction, or adds a mean to a sum.
void check_loss(LanguageModel& model, const TrainConfig& config) {
  if (typeid(model) == typeid(GPT)) return;
  const int64_t length = std::min<int64_t>(config.block_size, 64);  // a long one tells no more
  const auto loss = [&](Reduction reduction) {
    const Trial trial(model, config);
    const NoGrad no_grad;
    const Tensor ids = zeros({1, length}, i64);
    const Tensor value = model.loss(ids, ids, reduction);
    INK_CHECK(value.numel() == 1, "Trainer: expected the loss of model ", config.model,
              " to be one number, got ", value.shape());
    return value.item();
  };
  const double mean = loss(Reduction::mean), sum = loss(Reduction::sum),
               expected = mean * static_cast<double>(length);
  INK_CHECK(
      !std::isfinite(expected) || std::abs(sum - expected) <= 1e-4 * (std::abs(expected) + 1e-3),
      "Trainer: expected the loss of model ", config.model, " with Reduction::sum to be its mean ",
      "times the number of targets, ", expected, ", got ", sum,
      "; a term that is a mean over tokens is added by add_auxiliary_loss");
  const Restore z_loss(model.z_loss, 1.0);
  INK_CHECK(config.z_loss == 0 || loss(Reduction::mean) != mean, "Trainer: z_loss is ",
            config.z_loss, ", but the loss of model ", config.model,
            " does not use it; hand `training ? z_loss : 0` to cross_entropy there");
}

// What training does not notice, and sampling needs: a model sees no token that it is to predict,
// and its caches give the same logits. What is wrong is told before hours of steps, and nothing is
// refused, because a model may mean it.
void check_sampling(LanguageModel& model, const TrainConfig& config) {
  if (typeid(model) == typeid(GPT)) return;
  std::string wrong;
  model.eval();
  try {
    const Trial trial(model, config);
    const NoGrad no_grad;
    context().autocast = f32;
    const int64_t n = std::min<int64_t>(config.block_size, 4);
    const Tensor ids = (arange(n) % model.config.vocab_size).unsqueeze(0), whole = model(ids);
    const double most = amax(abs(whole)).item();
    const auto compare = [&](const char* how, int64_t tokens, const Tensor& logits) {
      const double apart = amax(abs(logits - whole.select(1, tokens - 1))).item();
      if (wrong.empty() && !(apart <= 1e-3 * most))
        wrong = detail::joined({how, ", its logits after ", tokens, " tokens differ by ", apart,
                                " from those of all at once, of up to ", most});
    };
    if (n > 1) compare("without later tokens", n - 1, model(ids.narrow(1, 0, n - 1)).select(1, -1));
    DecodeCache cache = model.make_cache();
    Tensor last;
    for (; model.uses_caches() && cache.size < n; ++cache.size)
      last = model.next_logits(ids.narrow(1, cache.size, 1), &cache);
    if (last.defined()) compare("token by token", n, last);
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  model.train();
  if (!wrong.empty())
    log_message("model ", config.model,
                " will write other samples than it should, or none: ", wrong);
}

// Copies ids into the same memory, unless the shape changes.
void copy_ids(Tensor& to, const std::vector<int64_t>& ids, int64_t rows) {
  const Tensor from = ids_tensor(ids, rows);
  if (!to.defined() || to.shape() != from.shape()) to = empty_like(from);
  to.copy_(from);
}

bool has_targets(const std::vector<int64_t>& y) {
  return std::any_of(y.begin(), y.end(), [](int64_t id) { return id != kIgnored; });
}

// The default generator's 5056 bytes as i64 (632), because safetensors of ours have no smaller
// integers.
Tensor saved_generator() {
  const std::vector<uint8_t> bytes = ink::generator_state();
  Tensor state = empty({std::ssize(bytes) / 8}, {i64, cpu_device});
  std::memcpy(state.mutable_data<int64_t>(), bytes.data(), bytes.size());
  return state;
}

}  // namespace

Tensor ids_tensor(const std::vector<int64_t>& ids, int64_t rows) {
  return from_vector(ids, Shape{rows, static_cast<int64_t>(ids.size()) / rows});
}

Trainer::Trainer(const TrainConfig& config) : Trainer(config, nullptr) {}

Trainer::Trainer(const TrainConfig& config, std::unique_ptr<Dataset> dataset)
    : Trainer(config, saved_run(config), std::move(dataset)) {}

Trainer::Trainer(const TrainConfig& config, const std::optional<SavedRun>& saved,
                 std::unique_ptr<Dataset> dataset)
    : config_((config.check(), saved && saved->is_start ? with_model_of(*saved, config) : config)),
      device_(own_device(processes(), parse_device(config.device))),
      data_(dataset ? "" : fingerprint_of(config)),
      dataset_(dataset ? std::move(dataset) : dataset_for(config_, data_, saved)),
      schedule_(config.schedule()) {
  const FieldGuard on_device(&Context::default_device, device_);
  for (const char* name : {kLastCheckpoint, kBestCheckpoint})
    known_[name] = checkpoint_checksum(config_.out_dir, name);
  // Data that are too short for a batch are refused before anything is written.
  dataset_->train_batch(0, 0, 1, config_.block_size);
  dataset_->val_batch(0, 0, 1, config_.block_size);
  check_can_be_saved(dataset_->tokenizer());
  validation_set_ = describe_validation();
  const GPTConfig sizes = config_.gpt(dataset_->tokenizer().vocab_size());
  manual_seed(static_cast<uint64_t>(config_.seed));
  model_ = make_model(config_.model, sizes, config_.model_settings);
  parameters_ = model_->parameters();
  num_parameters_ = model_->num_parameters();
  choose_arithmetic(saved);
  check_loss(*model_, config_);
  check_sampling(*model_, config_);
  model_->z_loss = config_.z_loss;
  if (config_.shard_optimizer && processes().size() > 1) make_shards();
  check_own_memory();
  optimizer_ = optimizer_of(shards_ ? shards_->own() : model_->named_parameters());
  if (saved) resume(*saved);
  skipped_before_ = skipped().total;
  if (config_.ema > 0)
    start_average(saved && !saved->is_start ? saved->average_state : NamedTensors());
  std::vector<Tensor> written = parameters_;
  for (const Tensor& average : average_ ? average_->parameters() : std::vector<Tensor>())
    written.push_back(average);
  replay_ = std::make_unique<Replay>(device_, written);
  if (processes().size() > 1) check_same_run(saved);
}

Trainer::~Trainer() = default;

std::unique_ptr<Optimizer> Trainer::optimizer_of(const NamedTensors& parameters) const {
  return make_optimizer(config_, parameters, table_names(*model_, model_->config.vocab_size));
}

// An element of a matrix costs Muon some 30 FLOPs for each of its shorter side, and AdamW the
// memory's time of as many as for eight of them. An optimizer of a program's own gets whole
// parameters, because it may look at all of one.
void Trainer::make_shards() {
  NamedTensors trained, updated;
  for (const auto& entry : model_->named_parameters())
    if (entry.second.requires_grad()) trained.push_back(entry);
  for (const ParameterGroup& group : decay_matrices(trained, 0))
    updated.insert(updated.end(), group.parameters.begin(), group.parameters.end());
  std::reverse(trained.begin(), trained.end());
  const auto tables = table_names(*model_, model_->config.vocab_size);
  const std::string& name = config_.optimizer;
  const bool elementwise = name == "adam" || name == "adamw" || name == "lion" || name == "sgd";
  const auto cost = [&](const std::string& parameter, const Tensor& value) {
    if (elementwise) return UpdateCost{};
    if (name != "muon") return UpdateCost{.by_rows = false};
    if (value.dim() != 2 || tables.count(parameter) > 0) return UpdateCost{};
    const auto side = static_cast<double>(std::min(value.size(0), value.size(1)));
    return UpdateCost{.by_rows = false, .element = 1 + side / 8};
  };
  shards_ = std::make_unique<Shards>(trained, updated, processes(), cost);
}

// Of this process: of several, each has its parts of the batch, and the sum of all gradients. What
// does not depend on the batch is checked before the passes that tell the rest.
void Trainer::check_own_memory() {
  const ContextGuard guard(run_context());
  const int64_t n = processes().size();
  TrainConfig own = config_;
  own.batch_parts = (own.batch_parts + n - 1) / n;
  own.batch_size = (own.batch_size + n - 1) / n;
  const auto tables = table_names(*model_, model_->config.vocab_size);
  const int64_t elsewhere = shards_ ? moment_bytes(model_->named_parameters(), tables, config_) -
                                          moment_bytes(shards_->own(), tables, config_)
                                    : 0;
  const bool on_cpu = device_.is_cpu();
  if (on_cpu) check_memory("this run", kept_memory(*model_, own).total() - elsewhere);
  memory_ = estimate_memory(*model_, own);
  if (n > 1) memory_.gradients += block_bytes(4 * num_parameters_);
  if (n > 1 && config_.wire_dtype != "float32")
    memory_.gradients += block_bytes(2 * num_parameters_);
  memory_.model -= elsewhere;
  if (on_cpu) check_memory("this run", memory_.total());
}

void Trainer::check_same_run(const std::optional<SavedRun>& saved) const {
  INK_CHECK(config_.batch_size >= processes().size(),
            "several processes: expected a batch_size of ", processes().size(), " or more, got ",
            config_.batch_size);
  check_same(
      to_json(config_), arithmetic().to_json(),
      detail::joined({dataset_->summary(), " ", data_, " ", validation_set_}),
      {model_->state_dict(), saved && !saved->is_start ? saved->optimizer_state : NamedTensors()});
}

void Trainer::follow(const StopEvaluation& stop) {
  for (Order order; (order = next_order()) != Order::end;) {
    if (order == Order::step)
      step();
    else if (order == Order::save)
      whole_optimizer_state();
    else
      evaluate(order == Order::evaluate_whole, stop);
  }
}

// Draws nothing, also if the model's constructor does.
std::unique_ptr<LanguageModel> Trainer::another_model() const {
  const init::Skip skip;
  Generator generator(0);
  const FieldGuard draws(&Context::generator, &generator);
  return make_model(config_.model, config_.gpt(dataset_->tokenizer().vocab_size()),
                    config_.model_settings);
}

// The average of a run that had none begins as its weights are.
void Trainer::start_average(const NamedTensors& saved) {
  average_ = another_model();
  average_->load_state_dict(saved.empty() ? model_->state_dict() : saved);
  average_->eval();
  averaging_ = std::make_unique<WeightAverage>(average_->parameters(), parameters_, config_.ema);
}

LanguageModel& Trainer::evaluated_model() const {
  if (!average_) return *model_;
  const NoGrad no_grad;
  const NamedTensors from = model_->named_buffers(), to = average_->named_buffers();
  for (size_t i = 0; i < to.size(); ++i) Tensor(to[i].second).copy_(from[i].second);
  return *average_;
}

Arithmetic Trainer::arithmetic() const {
  const ContextGuard guard(run_context());
  return Arithmetic::here(device_, config_.threads, config_.batch_parts, part_threads_);
}

// A resumed run keeps its units, threads and parts, unless the caller asks for others: what this
// machine would choose gives other bits. Where it cannot keep them, one line says so.
void Trainer::choose_arithmetic(const std::optional<SavedRun>& saved) {
  asked_threads_ = config_.threads, asked_parts_ = config_.batch_parts;
  const bool resumes = saved && !saved->is_start;
  const Arithmetic* before = resumes && saved->arithmetic ? &*saved->arithmetic : nullptr;
  const bool same_threads = before && asked_threads_ == saved->config.threads,
             same_parts = same_threads && asked_parts_ == saved->config.batch_parts &&
                          config_.batch_size >= before->batch_parts &&
                          before->batch_parts >= processes().size();
  if (config_.threads == 0) config_.threads = same_threads ? before->threads : max_threads();
  const ContextGuard guard(run_context());
  const int64_t n = processes().size();  // with so many parts each, whatever their threads
  config_.batch_parts =
      same_parts ? before->batch_parts
      : n > 1    ? std::min(n * std::max<int64_t>(1, config_.batch_parts), config_.batch_size)
                 : batch_parts(config_, num_parameters_);
  const bool one_each = n > 1 && config_.batch_parts == n;
  part_threads_ = same_parts ? before->part_threads : one_each ? config_.threads : 1;
  if (!resumes) return;
  if (!before)
    return log_message("resume: ", saved->folder.string(),
                       " is of an older version and does not say with which units and threads it "
                       "was trained; last bits may differ from here on");
  const DType dtype = config_.autocast();
  if (std::getenv("INKLING_CPU_CAPABILITY") == nullptr && context().first_unit == nullptr)
    first_unit_ = before->first_unit(dtype);
  std::vector<DType> dtypes{dtype};
  if (config_.optimizer == "muon" && dtype != bf16)
    dtypes.push_back(bf16);  // MuonOptions::ns_dtype
  const std::string changes = changed_bits(*before, arithmetic(), dtypes);
  if (!changes.empty()) log_message("resume: last bits will differ from here on: ", changes);
}

void Trainer::resume(const SavedRun& saved) {
  INK_CHECK(saved.tokenizer->to_json() == dataset_->tokenizer().to_json(),
            saved.is_start ? "--init_from" : "resume", ": the vocabulary of ", dataset_->summary(),
            " is not the one that ", saved.folder.string(), " was trained on",
            saved.is_start ? "; name a text with --data" : "");
  const bool of_average = saved.is_start && !saved.average_state.empty();  // what was evaluated
  const auto load_model_state = [&] {
    model_->load_state_dict(of_average ? saved.average_state : saved.model_state);
  };
  if (saved.is_start) return with_prefix(saved.folder.string(), load_model_state);
  const nlohmann::json mine = to_json(config_), its = to_json(saved.config);
  std::vector<std::string> kept = model_fields(config_);
  kept.emplace_back("optimizer");
  for (const std::string& name : kept) {
    INK_CHECK(its.at(name) == mine.at(name), "resume: ", name, " is ", mine.at(name).dump(),
              ", but ", saved.folder.string(), " has ", its.at(name).dump(),
              "; leave the option out, or start from scratch");
  }
  with_prefix(saved.folder.string(), [&] {
    load_model_state();
    optimizer_->load_state(shards_ ? shards_->own_part(saved.optimizer_state)
                                   : saved.optimizer_state);
  });
  if (saved.generator_state) default_generator().set_state(*saved.generator_state);
  steps_done_ = saved.step;
  validated_step_ = saved.validated_step;
  // Who does not say what it measured on, an older version, did so as its settings say.
  const auto settings = [](const TrainConfig& c) {
    return std::tuple(c.eval_iters, c.seed, c.batch_size, c.val_fraction);
  };
  const bool same_data = !config_.data_changed && (saved.data.empty() || saved.data == data_);
  const std::string unnamed =
      same_data && settings(config_) == settings(saved.config) ? validation_set_ : "other data";
  const std::string& before = saved.validation_set.empty() ? unnamed : saved.validation_set;
  best_is_of_another_set_ = saved.best_val_loss && before != validation_set_;
  if (best_is_of_another_set_) {
    other_best_ = {{"best_val_loss", *saved.best_val_loss}, {"validation_set", before}};
    if (saved.best_step) other_best_["best_step"] = *saved.best_step;
    return log_message("resume: the best validation loss so far, ", *saved.best_val_loss,
                       ", is not compared with those from here on: it is of ",
                       printable(before, 200), ", and they are of ", validation_set_);
  }
  best_val_loss_ = saved.best_val_loss.value_or(best_val_loss_);
  best_step_ = saved.best_step;
}

// A checksum of some windows, at equal distances, stands for all.
std::string Trainer::describe_validation() const {
  const int64_t T = config_.block_size, windows = dataset_->val_windows(T),
                looked_at = std::min<int64_t>(windows, 64);
  uint64_t crc = crc64(std::as_bytes(std::span(data_)));
  for (int64_t i = 0; i < looked_at; ++i) {
    const Batch batch = dataset_->val_window_batch(i * (windows / looked_at), 1, T);
    for (const auto& ids : {batch.x, batch.y}) crc = crc64(std::as_bytes(std::span(ids)), crc);
  }
  const std::string windows_text =
      detail::joined({windows, " windows of ", T, " tokens with CRC-64 ", crc});
  if (config_.eval_iters == 0) return "all " + windows_text;
  return detail::joined({config_.eval_iters, " batches of ", config_.batch_size, " (seed ",
                         config_.seed, ") of ", windows_text});
}

Context Trainer::run_context() const {
  Context run = context();
  run.grad_enabled = true;  // also in a caller's NoGrad
  run.composed = config_.composed;
  run.recompute = config_.recompute;
  run.autocast = config_.autocast();
  run.default_device = device_;
  run.threads = config_.threads;
  if (first_unit_ != nullptr) run.first_unit = first_unit_;
  return run;
}

// Fetches a step's micro-batches into the tensors that hold them. Is there a target among them?
bool Trainer::load_batches(int64_t step) {
  const NoGrad no_grad;
  bool targets = false;
  best_possible_ = 0;
  batches_.resize(static_cast<size_t>(config_.gradient_accumulation_steps));
  for (size_t i = 0; i < batches_.size(); ++i) {
    const Batch batch = dataset_->train_batch(
        static_cast<uint64_t>(config_.seed), static_cast<uint64_t>(step), config_.batch_size,
        config_.block_size, static_cast<int64_t>(i) * config_.batch_size);
    copy_ids(batches_[i].x, batch.x, batch.batch_size);
    copy_ids(batches_[i].y, batch.y, batch.batch_size);
    note_work("batch", {}, {batches_[i].x, batches_[i].y});
    best_possible_ += batch.mean_best_possible() / static_cast<double>(batches_.size());
    best_possible_known_ = !batch.best_possible.empty();
    targets = targets || has_targets(batch.y);
  }
  return targets;
}

// 1 divided by the number of targets in all micro-batches: () f32, which the host does not read.
Tensor Trainer::share_of_a_target() const {
  const NoGrad no_grad;
  Tensor count;
  for (const Ids& ids : batches_) {
    const Tensor here = sum(ids.y != kIgnored);
    count = count.defined() ? count + here : here;
  }
  return 1 / to(count, f32);
}

// Runs a micro-batch. The loss is a sum over targets if `scale` is given, which scales the
// gradients; otherwise it is a mean.
void Trainer::forward_backward(int64_t step, int64_t micro_batch, BatchParts& parts,
                               const Tensor& scale) {
  const bool last = micro_batch + 1 == config_.gradient_accumulation_steps;
  context().random = {.seed = static_cast<uint64_t>(config_.seed),
                      .step = static_cast<uint64_t>(step),
                      .micro_batch = static_cast<uint64_t>(micro_batch)};
  // What draws from the default generator draws as a function of seed, step and micro-batch, too.
  Generator generator(
      splitmix::mix(context().random.seed + splitmix::kGamma * context().random.micro_batch) +
      context().random.step);
  const FieldGuard draws(&Context::generator,
                         context().imitate_torch ? context().generator : &generator);
  const Ids& ids = batches_[static_cast<size_t>(micro_batch)];
  const Reduction reduction = scale.defined() ? Reduction::sum : Reduction::mean;
  parts.backward(
      config_.batch_size, scale,
      [&](int64_t first, int64_t count) {
        return model_->loss(ids.x.narrow(0, first, count), ids.y.narrow(0, first, count), reduction)
            .reshape({});
      },
      last);
}

// Returns the mean loss over a step's targets, outside any graph, and adds its gradients. All
// targets have the same weight, whatever their micro-batch and part. Gradients of the caller's, or
// of a step that an exception ended, are none of this one's.
Tensor Trainer::forward_backward_all(int64_t step) {
  clear_gradients();
  // Observers see one thread, of one process.
  Processes alone;
  const bool seen = !context().observers.empty();
  const int64_t parts = seen ? 1 : config_.batch_parts;
  const int64_t micro_batches = config_.gradient_accumulation_steps;
  const Tensor share = parts * micro_batches > 1 ? share_of_a_target() : Tensor();
  // Sums travel in the order in which backward completes gradients.
  std::vector<Tensor> leaves(parameters_.rbegin(), parameters_.rend());
  SumOptions sums{config_.wire_dtype == "bfloat16" ? bf16 : f32, {}};
  if (shards_ && !seen) {
    leaves = shards_->parameters();
    sums.ends = shards_->ends(starts_in_sum(leaves));
  }
  BatchParts batch(parts, seen ? alone : processes(), part_threads_, leaves, sums);
  for (int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch)
    forward_backward(step, micro_batch, batch, share);
  const Tensor total = batch.add_to_leaves();
  const NoGrad no_grad;
  return share.defined() ? total * share : total;
}

// The part of a step that runs on the device. It reads batches_ and the learning rate. The host
// reads none of its results here.
void Trainer::forward_backward_update() {
  const Tensor step_loss = forward_backward_all(steps_done_);
  const NoGrad no_grad;
  optimizer_->step(step_loss, shards_ ? shards_->take_gradients() : Tensor());
  if (shards_) shards_->share_values();
  if (averaging_) averaging_->update(optimizer_->status().finite);
  clear_gradients();
}

void Trainer::clear_gradients() {
  for (Tensor& parameter : parameters_)
    if (parameter.grad().defined()) parameter.set_grad({});
  if (shards_) optimizer_->zero_grad();  // of its rows
}

void Trainer::step() {
  const Ordered together(Order::step);
  model_->train();
  const ContextGuard guard(run_context());
  context().random.step = static_cast<uint64_t>(steps_done_);
  optimizer_->set_lr(schedule_(steps_done_));
  if (load_batches(steps_done_)) {  // without a target there is nothing to learn, and no mean
    std::vector<Tensor> ids;
    for (const Ids& batch : batches_) ids.insert(ids.end(), {batch.x, batch.y});
    // A graph of launches holds no transfers, and what they wait for.
    processes().size() > 1 ? forward_backward_update()
                           : replay_->run([&] { forward_backward_update(); }, ids);
    best_possible_sum_ += best_possible_;
    ++tried_since_;
  }
  ++steps_since_;
  ++steps_done_;
}

Progress Trainer::progress() {
  INK_CHECK(steps_since_ > 0, "progress: no step was taken since it was last asked");
  const NoGrad no_grad;
  const OptimizerStatus& status = optimizer_->status();
  const int64_t skipped = this->skipped().total,
                counted = tried_since_ - (skipped - std::exchange(skipped_before_, skipped));
  Tensor losses = status.loss_sum;
  Progress result{.loss = counted > 0 ? losses.item() / static_cast<double>(counted) : NAN,
                  .best_possible = {},
                  .lr = status.lr.item(),
                  .grad_norm = status.grad_norm.item(),
                  .skipped = skipped,
                  .tokens = steps_since_ * config_.gradient_accumulation_steps *
                            config_.batch_size * config_.block_size};
  if (best_possible_known_ && counted > 0)
    result.best_possible = best_possible_sum_ / static_cast<double>(tried_since_);
  losses.zero_();
  best_possible_sum_ = 0;
  steps_since_ = tried_since_ = 0;
  return result;
}

Skipped Trainer::skipped() const {
  const auto counts = optimizer_->status().skipped.tolist<int64_t>();
  return {counts[0], counts[1]};
}

Evaluation Trainer::evaluate(bool whole, const StopEvaluation& stop) const {
  const Ordered together(whole ? Order::evaluate_whole : Order::evaluate);
  const ContextGuard guard(run_context());
  return ink::evaluate(evaluated_model(), *dataset_, whole ? 0 : config_.eval_iters,
                       config_.batch_size, static_cast<uint64_t>(config_.seed), stop, processes());
}

bool Trainer::note_validation(double loss) {
  validated_step_ = steps_done_;
  if (!(loss < best_val_loss_)) return false;
  best_val_loss_ = loss;
  best_step_ = steps_done_;
  best_is_of_another_set_ = false;
  return true;
}

void Trainer::measure_best_again(const StopEvaluation& stop) {
  const ContextGuard guard(run_context());
  const auto model = another_model();
  LoadedCheckpoint best;
  int64_t step = 0;
  try {
    best = load_checkpoint(
        config_.out_dir, kBestCheckpoint, Parts::all, [&](const LoadedCheckpoint& saved) {
          model->load_state_dict(saved.average.empty() ? saved.model : saved.average);
          step = Fields("state.json", saved.state).count("step", kMostSteps);
        });
  } catch (const Error& error) {
    other_best_ = nlohmann::json::object();
    return log_message("resume: the best checkpoint is forgotten: ", error.what());
  }
  const Evaluation found = ink::evaluate(*model, *dataset_, config_.eval_iters, config_.batch_size,
                                         static_cast<uint64_t>(config_.seed), stop);
  if (!found.whole || !std::isfinite(found.loss)) return;
  best_val_loss_ = found.loss;
  best_step_ = step;
  best_is_of_another_set_ = false;
  best.config = saved_config();
  best.state["data"] = data_;
  best.state["best_val_loss"] = best_val_loss_;
  best.state["best_step"] = step;
  best.state["validation_set"] = validation_set_;
  write(kBestCheckpoint, best);
}

// What another trainer saved there meanwhile is not replaced.
void Trainer::write(const std::string& name, const Checkpoint& checkpoint) {
  const std::string there = checkpoint_checksum(config_.out_dir, name);
  const auto known = known_.find(name);
  INK_CHECK(there.empty() || known == known_.end() || there == known->second,
            "save: ", printable(config_.out_dir, 200), "/", name,
            ": another trainer saved it after this one was made, or last saved there, and it would "
            "be lost; give each run an out_dir of its own, or move that checkpoint away");
  known_.erase(name);  // a save that fails may be repeated, whatever it has left
  known_[name] = save_checkpoint(config_.out_dir, name, checkpoint);
}

void Trainer::check_finite() const { check_finite(optimizer_->state()); }

void Trainer::check_finite(const NamedTensors& optimizer_state) const {
  const NoGrad no_grad;
  const auto check = [&](const char* what, const NamedTensors& tensors) {
    for (const auto& [name, x] : tensors)
      INK_CHECK(!x.is_floating() || all(isfinite(x)).item<bool>(), "save: ", what, " ", name,
                " is not finite after step ", steps_done_, "; ",
                checkpoint_exists(config_.out_dir, kLastCheckpoint)
                    ? config_.out_dir + " keeps the checkpoint from before. Try"
                    : "try",
                " a lower --learning_rate");
  };
  check("parameter", model_->named_parameters());
  NamedTensors buffers = model_->named_buffers();
  for (auto& [name, x] : buffers)  // one may be a mask of -inf
    if (x.is_floating()) x = masked_fill(x, abs(x) == inf, 0);
  check("buffer", buffers);
  check("the optimizer's", optimizer_state);
}

std::string Trainer::sample_start() const {
  return usable_start(dataset_->tokenizer(), dataset_->sample_start());
}

TrainConfig Trainer::given_config() const {
  TrainConfig config = config_;
  config.threads = asked_threads_, config.batch_parts = asked_parts_;
  return config;
}

nlohmann::json Trainer::saved_config() const {
  nlohmann::json config = to_json(given_config());
  config.erase("init_from");  // these four belong to the process, not to the run
  config.erase("data_changed");
  config.erase("out_dir");
  config.erase("device");
  config["vocabulary"] = nlohmann::json::parse(dataset_->tokenizer().to_json());
  config["start"] = sample_start();
  return config;
}

// That of one program, at process 0, on the CPU; others send it theirs, and have none.
NamedTensors Trainer::whole_optimizer_state() {
  if (!shards_) return optimizer_->state();
  const Ordered together(Order::save);
  NamedTensors whole;
  if (processes().leads()) {
    NamedTensors parameters = model_->named_parameters();
    for (auto& [name, value] : parameters)
      if (!device_.is_cpu())
        value =
            empty(value.shape(), {value.dtype(), cpu_device}).requires_grad_(value.requires_grad());
    whole = optimizer_of(parameters)->state();
  }
  shards_->gather_state(optimizer_->state(), whole);
  return whole;
}

void Trainer::save(const std::string& name) {
  const NamedTensors optimizer_state = whole_optimizer_state();
  check_finite(optimizer_state);
  Checkpoint checkpoint;
  checkpoint.config = saved_config();
  checkpoint.state = {{"step", steps_done_},
                      {"dataset", dataset_->summary()},
                      {"data", data_},
                      {"validated_step", validated_step_},
                      {"validation_set", validation_set_},
                      {"arithmetic", arithmetic().to_json()}};
  if (!unwritten_.empty()) checkpoint.state["unwritten"] = unwritten_;
  if (best_step_) checkpoint.state["best_step"] = *best_step_;
  checkpoint.state["best_val_loss"] =
      std::isfinite(best_val_loss_) ? nlohmann::json(best_val_loss_) : nlohmann::json();
  if (best_is_of_another_set_) checkpoint.state.update(other_best_);  // until it is measured again
  checkpoint.model = model_->state_dict();
  if (average_) checkpoint.average = evaluated_model().state_dict();
  checkpoint.optimizer = optimizer_state;
  checkpoint.optimizer.emplace_back(kGeneratorState, saved_generator());
  write(name, checkpoint);
}

std::string Trainer::find_non_finite() {
  const ContextGuard guard(run_context());
  NanSentinel sentinel;
  {
    const Observe observe(sentinel);
    load_batches(steps_done_ - 1);
    forward_backward_all(steps_done_ - 1);
  }
  clear_gradients();
  return sentinel.first();
}

}  // namespace ink
