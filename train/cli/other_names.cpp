#include "train/cli/other_names.h"

#include <algorithm>
#include <string_view>

namespace ink {
namespace {

constexpr Answer same = Answer::same, sets = Answer::sets, left_out = Answer::left_out,
                 told = Answer::told, like = Answer::like;

constexpr const char* kOneProcess = "a run is one process on one device";
constexpr const char* kLogged = "metrics.jsonl and report.html in out_dir hold what a run logs";
constexpr const char* kKept = "out_dir keeps the last checkpoint, the one before, and the best";
constexpr const char* kCompiled = "kernels are compiled when the program is built";
constexpr const char* kFused = "ops are fused unless --composed is given";
constexpr const char* kFloat32 = "weights, moments and sums are kept in float32";
constexpr const char* kSizes =
    "type sizes one by one, such as --n_layer 12 --n_head 12 --n_embd 768; to begin with the "
    "weights of a run of inkling, --init_from FOLDER";
constexpr const char* kEvaluates = "to evaluate a run, type {eval --out_dir FOLDER}";
constexpr const char* kOneBatch = "to train on one random batch, type {bench}";

}  // namespace

// clang-format off
const std::vector<OtherProgram>& other_programs() {
  static const std::vector<OtherProgram> programs = {
      {"nanoGPT",
       {{"always_save_checkpoint", "", left_out, kKept},
        {"backend", "", left_out, kOneProcess},
        {"compile", "", left_out, kCompiled},
        {"decay_lr", "true", left_out, "the learning rate falls along a cosine by default"},
        {"decay_lr", "false", sets, "min_lr = learning_rate, warmup_iters = 0"},
        {"device", "mps", told, "--device cpu uses all cores; there is nothing for Apple's GPUs"},
        {"dtype", "", left_out, kFloat32},
        {"eval_only", "false", left_out, "train trains"},
        {"eval_only", "", told, kEvaluates},
        {"init_from", "gpt2*", told, "GPT-2's weights cannot be read; name the folder of a run"},
        {"init_from", "resume", left_out, "the run in out_dir is taken"},
        {"real_data", "", left_out, "bench trains on random tokens, which take the same time"},
        {"wandb_log", "", left_out, kLogged},
        {"wandb_project", "", left_out, kLogged},
        {"wandb_run_name", "", left_out, kLogged}}},
      {"llm.c, train_gpt2cu",
       {{"-i", "", same, "data"},
        {"-j", "", same, "val_data"},
        {"-e", "", told, kSizes},
        {"-o", "", same, "out_dir"},
        {"-lg", "", left_out, "metrics.jsonl holds the memory"},
        {"-n", "", left_out, "every evaluation is followed by a checkpoint"},
        {"-nk", "", left_out, kKept},
        {"-nm", "", left_out, kKept},
        {"-y", "0", left_out, "a run begins anew by default"},
        {"-y", "1", sets, "init_from = resume"},
        {"-b", "", same, "batch_size"},
        {"-t", "", same, "block_size"},
        {"-d", "", sets, "gradient_accumulation_steps = x / (batch_size * block_size)"},
        {"-x", "", same, "max_iters"},
        {"-k", "cosine", left_out, "the learning rate falls along a cosine by default"},
        {"-k", "constant", sets, "schedule = constant, warmup_iters = 0"},
        {"-k", "", same, "schedule"},
        {"-l", "", same, "learning_rate"},
        {"-u", "", same, "warmup_iters"},
        {"-q", "", sets, "min_lr = x * learning_rate"},
        {"-c", "", same, "weight_decay"},
        {"-sl", "0", left_out, "steps are skipped only where a loss or gradient is not finite"},
        {"-sl", "", told, "there is --grad_clip, and steps that are not finite are skipped"},
        {"-sg", "0", left_out, "steps are skipped only where a loss or gradient is not finite"},
        {"-sg", "", told, "there is --grad_clip, and steps that are not finite are skipped"},
        {"-v", "", same, "eval_interval"},
        {"-m", "", same, "eval_iters"},
        {"-s", "", same, "sample_interval"},
        {"-g", "", left_out, "a sample is as long as the context"},
        {"-h", "0", left_out, "there is no HellaSwag"},
        {"-h", "1", told, "there is no HellaSwag; a run has its validation loss"},
        {"-a", "0", left_out, "every step has a batch of its own"},
        {"-a", "", told, kOneBatch},
        {"-f", "", left_out, "INKLING_TF32=1 in the environment gives TF32 on a GPU"},
        {"-w", "", left_out, kFloat32},
        {"-ge", "", left_out, kFused},
        {"-r", "0", sets, "recompute = false"},
        {"-r", "", sets, "recompute = true"},
        {"-z", "", left_out, kOneProcess},
        {"-pn", "", left_out, kOneProcess},
        {"-pr", "", left_out, kOneProcess},
        {"-pg", "", left_out, kOneProcess},
        {"-pm", "", left_out, kOneProcess},
        {"-ps", "", left_out, kOneProcess},
        {"-pf", "", left_out, kOneProcess}}},
      {"llm.c, train_gpt2.py",
       {{"input_bin", "", same, "data"},
        {"input_val_bin", "", same, "val_data"},
        {"output_dir", "", same, "out_dir"},
        {"sequence_length", "", same, "block_size"},
        {"total_batch_size", "", sets,
         "gradient_accumulation_steps = x / (batch_size * block_size)"},
        {"num_iterations", "", same, "max_iters"},
        {"inference_only", "0", left_out, "train trains"},
        {"inference_only", "", told, "to let a run write, type {sample --out_dir FOLDER}"},
        {"learning_rate_decay_frac", "", sets, "min_lr = x * learning_rate"},
        {"val_loss_every", "", same, "eval_interval"},
        {"val_max_steps", "", same, "eval_iters"},
        {"sample_every", "", same, "sample_interval"},
        {"overfit_single_batch", "0", left_out, "every step has a batch of its own"},
        {"overfit_single_batch", "", told, kOneBatch},
        {"tensorcores", "", left_out, "INKLING_TF32=1 in the environment gives TF32 on a GPU"},
        {"flash", "", left_out, kFused},
        {"zero_stage", "", left_out, kOneProcess},
        {"write_tensors", "0", left_out, "no tensors are written beside the checkpoints"},
        {"write_tensors", "", told, "to see the tensors of a pass, type {look --out_dir FOLDER}"}}},
      {"Hugging Face",
       {{"adam_beta1", "", like, "beta1"},
        {"adam_beta2", "", like, "beta2"},
        {"adam_epsilon", "", told, "AdamW's epsilon is 1e-8"},
        {"bf16", "", like, "dtype=bfloat16"},
        {"ddp_backend", "", told, kOneProcess},
        {"deepspeed", "", told, kOneProcess},
        {"do_eval", "", told, kEvaluates},
        {"do_sample", "", told, "sample draws; --temperature 0 takes the likeliest token"},
        {"do_train", "", told, "train trains; leave it out"},
        {"eval_steps", "", like, "eval_interval"},
        {"eval_strategy", "", like, "eval_interval"},
        {"evaluation_strategy", "", like, "eval_interval"},
        {"fp16", "", like, "dtype=bfloat16"},
        {"gradient_checkpointing", "", like, "recompute"},
        {"local_rank", "", told, kOneProcess},
        {"logging_steps", "", like, "log_interval"},
        {"logging_dir", "", like, "out_dir"},
        {"lr_scheduler_type", "", like, "schedule"},
        {"max_grad_norm", "", like, "grad_clip"},
        {"max_length", "", like, "max_new_tokens block_size"},
        {"max_seq_length", "", like, "block_size"},
        {"max_steps", "", like, "max_iters"},
        {"model_name_or_path", "", like, "init_from out_dir"},
        {"no_cuda", "", like, "device=cpu"},
        {"no_repeat_ngram_size", "", like, "repetition_penalty"},
        {"num_beams", "", told,
         "there is no beam search; --temperature 0 takes the likeliest token"},
        {"num_return_sequences", "", like, "num_samples"},
        {"num_train_epochs", "", like, "max_iters"},
        {"optim", "", like, "optimizer"},
        {"overwrite_output_dir", "", like, "overwrite"},
        {"per_device_eval_batch_size", "", like, "batch_size"},
        {"per_device_train_batch_size", "", like, "batch_size"},
        {"push_to_hub", "", told, "nothing is sent anywhere; leave it out"},
        {"report_to", "", told, kLogged},
        {"resume_from_checkpoint", "", like, "init_from=resume"},
        {"run_name", "", like, "out_dir"},
        {"save_steps", "", like, "eval_interval"},
        {"save_strategy", "", like, "eval_interval"},
        {"save_total_limit", "", told, kKept},
        {"tokenizer_name", "", like, "tokenizer"},
        {"torch_compile", "", told, kCompiled},
        {"train_file", "", like, "data"},
        {"typical_p", "", like, "top_p min_p"},
        {"use_cpu", "", like, "device=cpu"},
        {"validation_file", "", like, "val_data val_fraction"},
        {"warmup_ratio", "", like, "warmup_iters"},
        {"warmup_steps", "", like, "warmup_iters"}}},
      {"minGPT, LitGPT, nanochat, PyTorch's examples",
       {{"accelerator", "", like, "device"},
        {"bptt", "", like, "block_size"},
        {"checkpoint_dir", "", like, "init_from out_dir"},
        {"devices", "", told, kOneProcess},
        {"device_batch_size", "", like, "batch_size"},
        {"dropout_rate", "", like, "dropout"},
        {"embd_pdrop", "", like, "dropout"},
        {"attn_pdrop", "", like, "dropout"},
        {"resid_pdrop", "", like, "dropout"},
        {"dry_run", "", told, "to compare a few steps and write nothing, type {train --check}"},
        {"emsize", "", like, "n_embd"},
        {"global_batch_size", "", like, "batch_size gradient_accumulation_steps"},
        {"grad_norm_clip", "", like, "grad_clip"},
        {"log_iter_interval", "", like, "log_interval"},
        {"lr_warmup_steps", "", like, "warmup_iters"},
        {"matrix_lr", "", like, "learning_rate"},
        {"max_norm", "", like, "grad_clip"},
        {"max_seq_len", "", like, "block_size"},
        {"micro_batch_size", "", like, "batch_size"},
        {"model_type", "", told, kSizes},
        {"nhead", "", like, "n_head"},
        {"nhid", "", like, "n_embd"},
        {"nlayers", "", like, "n_layer"},
        {"nproc_per_node", "", told, kOneProcess},
        {"sample_only", "", told, "to let a run write, type {sample --out_dir FOLDER}"},
        {"save_interval", "", like, "eval_interval"},
        {"target_param_data_ratio", "", like, "max_iters"},
        {"tied", "", told, "the GPT ties the weights of embedding and head; leave it out"},
        {"tokenizer_dir", "", like, "tokenizer"},
        {"weight_tying", "", told, "the GPT ties the weights of embedding and head; leave it out"},
        {"words", "", like, "max_new_tokens"},
        {"work_dir", "", like, "out_dir"}}},
      {"Others",
       {{"accum", "", like, "gradient_accumulation_steps"},
        {"accumulate", "", like, "gradient_accumulation_steps"},
        {"amp", "", like, "dtype=bfloat16"},
        {"batch", "", like, "batch_size"},
        {"betas", "", like, "beta1 beta2"},
        {"block", "", like, "block_size"},
        {"bs", "", like, "batch_size"},
        {"clip", "", like, "grad_clip"},
        {"context", "", like, "block_size"},
        {"context_length", "", like, "block_size"},
        {"corpus", "", like, "data"},
        {"cpu", "", like, "device=cpu"},
        {"ctx", "", like, "block_size"},
        {"cuda", "", like, "device=cuda"},
        {"d_model", "", like, "n_embd"},
        {"depth", "", like, "n_layer"},
        {"dim", "", like, "n_embd"},
        {"epochs", "", like, "max_iters"},
        {"eval_every", "", like, "eval_interval"},
        {"file", "", like, "data start"},
        {"files", "", like, "data start"},
        {"folder", "", like, "out_dir"},
        {"fp32", "", like, "dtype=float32"},
        {"gpu", "", like, "device=cuda"},
        {"grad_accum", "", like, "gradient_accumulation_steps"},
        {"heads", "", like, "n_head"},
        {"hidden", "", like, "n_embd"},
        {"hidden_size", "", like, "n_embd"},
        {"input", "", like, "data start"},
        {"input_file", "", like, "data start"},
        {"iterations", "", like, "max_iters"},
        {"iters", "", like, "max_iters"},
        {"kv_heads", "", like, "n_kv_head"},
        {"layers", "", like, "n_layer"},
        {"length", "", like, "max_new_tokens block_size"},
        {"log_every", "", like, "log_interval"},
        {"lr", "", like, "learning_rate"},
        {"lr_decay", "", like, "lr_decay_iters"},
        {"max_epochs", "", like, "max_iters"},
        {"max_tokens", "", like, "max_new_tokens"},
        {"n", "", like, "num_samples"},
        {"n_ctx", "", like, "block_size"},
        {"n_epochs", "", like, "max_iters"},
        {"num_attention_heads", "", like, "n_head"},
        {"num_epochs", "", like, "max_iters"},
        {"num_heads", "", like, "n_head"},
        {"num_hidden_layers", "", like, "n_layer"},
        {"num_key_value_heads", "", like, "n_kv_head"},
        {"num_layers", "", like, "n_layer"},
        {"num_steps", "", like, "max_iters"},
        {"num_workers", "", like, "threads"},
        {"output", "", like, "out_dir"},
        {"precision", "", like, "dtype"},
        {"prompt", "", like, "start"},
        {"resume", "", like, "init_from=resume"},
        {"samples", "", like, "num_samples sample_interval"},
        {"save", "", like, "out_dir"},
        {"save_dir", "", like, "out_dir"},
        {"seq_len", "", like, "block_size"},
        {"steps", "", like, "max_iters"},
        {"temp", "", like, "temperature"},
        {"text", "", like, "data start"},
        {"tokens", "", like, "max_new_tokens"},
        {"topk", "", like, "top_k"},
        {"topp", "", like, "top_p"},
        {"verbose", "", told, "log_interval sets how often a line is shown; leave it out"},
        {"warmup", "", like, "warmup_iters"},
        {"wd", "", like, "weight_decay"},
        {"width", "", like, "n_embd"},
        {"workers", "", like, "threads"}}}};
  return programs;
}

// run.sh reads these rows, too: one a line.
const std::vector<OtherCommand>& other_commands() {
  static const std::vector<OtherCommand> commands = {
      {"attention", "type {sample --attention page.html}"},
      {"benchmark", "type {bench}"},
      {"chat", "a model continues a text: type {sample --start TEXT}"},
      {"check", "type {gradcheck} for the ops, {train --check} for a run"},
      {"complete", "type {sample --start TEXT}"},
      {"configurator", "type {train FILE.py}, a config file with lines NAME = VALUE"},
      {"continue", "type {train --init_from resume --out_dir FOLDER}"},
      {"convert", "the weights of a run are safetensors: FOLDER/ckpt/model.safetensors"},
      {"data", "texts are read as they are: type {train --data FILE}"},
      {"demo", "type {lesson 7}"},
      {"download", "no download is needed: {train} has stories of its own; --data names a text"},
      {"evaluate", "type {eval --out_dir FOLDER}"},
      {"export", "the weights of a run are safetensors: FOLDER/ckpt/model.safetensors"},
      {"finetune", "type {train --init_from FOLDER --data FILE --out_dir NEW}"},
      {"fine_tune", "type {train --init_from FOLDER --data FILE --out_dir NEW}"},
      {"fit", "type {train --data FILE}"},
      {"generate", "type {sample --start TEXT}"},
      {"graph", "type {draw}"},
      {"infer", "type {sample --start TEXT}"},
      {"inference", "type {sample --start TEXT}"},
      {"init", "type {train}"},
      {"inspect", "type {info --out_dir FOLDER} for a checkpoint, {look} for a page of a pass"},
      {"learn", "type {lesson} to read, {exercise} to do"},
      {"list", "type {report FOLDER ...} for runs, {lesson} for lessons"},
      {"load", "type {info --out_dir FOLDER}"},
      {"log", "type {report FOLDER --text}"},
      {"perplexity", "type {eval --out_dir FOLDER}; perplexity is e to the power of its loss"},
      {"plot", "type {report FOLDER}; --svg FILE draws the loss alone"},
      {"predict", "type {sample --start TEXT}"},
      {"pretrain", "type {train --data FILE}"},
      {"profile", "type {train --profile trace.json}, or {bench}"},
      {"resume", "type {train --init_from resume --out_dir FOLDER}"},
      {"run", "type {train}, then {sample}"},
      {"save", "{train} saves by itself, in --out_dir"},
      {"serve", "there is no server: {sample --start TEXT} writes to standard output"},
      {"sft", "type {train --init_from FOLDER --data FILE --out_dir NEW}"},
      {"summary", "type {info --out_dir FOLDER}"},
      {"tensorboard", "type {report FOLDER}"},
      {"test", "type {eval --out_dir FOLDER} for a run; ./run.sh test tests the library"},
      {"tokenize", "type {prepare} for data to train on, or {tokenizer encode}"},
      {"train_gpt2", "type {train}"},
      {"train_gpt2cu", "type {train}"},
      {"tutorial", "type {lesson} to read, {exercise} to do"},
      {"val", "type {eval --out_dir FOLDER}"},
      {"validate", "type {eval --out_dir FOLDER}"},
      {"version", "type {info}"},
      {"visualize", "type {look} for a pass, {draw} for the ops, {report FOLDER} for a run"}};
  return commands;
}
// clang-format on

std::optional<bool> truth_of(const std::string& word) {
  for (const char* name : {"true", "True", "TRUE", "1"})
    if (word == name) return true;
  for (const char* name : {"false", "False", "FALSE", "0"})
    if (word == name) return false;
  return {};
}

const OtherName* other_name(const std::string& name, const std::string& given) {
  const std::optional<bool> truth = truth_of(given);
  const OtherName* any = nullptr;
  for (const OtherProgram& program : other_programs()) {
    for (const OtherName& row : program.names) {
      if (row.name != name) continue;
      std::string_view wanted = row.value;
      const bool begins = wanted.ends_with('*');
      if (begins) wanted.remove_suffix(1);
      if (begins ? given.starts_with(wanted) : !wanted.empty() && given == wanted) return &row;
      if (truth && wanted == (*truth ? "true" : "false")) return &row;
      if (wanted.empty() && any == nullptr) any = &row;
    }
  }
  return any;
}

const OtherCommand* other_command(const std::string& word) {
  std::string name = word.substr(0, word.ends_with(".py") ? word.size() - 3 : word.size());
  std::replace(name.begin(), name.end(), '-', '_');
  for (const OtherCommand& row : other_commands())
    if (row.name == name) return &row;
  return nullptr;
}

std::string with_typed(const std::string& text, const std::string& program) {
  std::string all;
  for (const char c : text) {
    if (c == '{') {
      all += program;
    } else if (c != '}') {
      all += c;
    }
  }
  return all;
}

}  // namespace ink
