#include "train/cli/other_names.h"

#include <algorithm>
#include <string_view>

namespace ink {
namespace {

constexpr Answer same = Answer::same, sets = Answer::sets, left_out = Answer::left_out,
                 told = Answer::told, like = Answer::like;

constexpr const char* kOneProcess =
    "a run is one process, or the N that ./run.sh train --processes N starts";
constexpr const char* kTensorBoard =
    "{report FOLDER --tensorboard DIR} writes for TensorBoard what a run logged";
constexpr const char* kLogged = "metrics.jsonl and report.html in out_dir hold what a run logs";
constexpr const char* kKept = "out_dir keeps the last checkpoint, the one before, and the best";
constexpr const char* kCompiled = "kernels are compiled when the program is built";
constexpr const char* kFused = "ops are fused unless --composed is given";
constexpr const char* kFloat32 = "weights, moments and sums are kept in float32";
constexpr const char* kSizes =
    "type sizes one by one, such as --n_layer 12 --n_head 12 --n_embd 768; to begin with the "
    "weights of a run of inkling, --init_from FOLDER";
constexpr const char* kEvaluates = "to evaluate a run, type {eval --out_dir FOLDER}";
constexpr const char* kTied = "the GPT ties the weights of embedding and head; leave it out";
constexpr const char* kVocabulary =
    "the vocabulary is that of --tokenizer: char, byte, bpe:N, or a tokenizer's file or folder";
constexpr const char* kMlp = "the GPT's MLP is 4 n_embd wide; Llama's has --intermediate_size";
constexpr const char* kActivation = "the GPT's MLP has GELU, Llama's SwiGLU; leave it out";
constexpr const char* kNoExperts = "there is no mixture of experts; leave it out";
constexpr const char* kEpsilon = "AdamW's epsilon is 1e-8, that of norms 1e-5";
constexpr const char* kNoStop =
    "there is no early stopping; out_dir/best keeps the weights of the best evaluation";
constexpr const char* kBest =
    "out_dir/best has the lowest validation loss; sample and eval take it";
constexpr const char* kOfSample = "a trained model writes: type {sample --start TEXT}";
constexpr const char* kTf32 = "INKLING_TF32=1 in the environment gives TF32 on a GPU";
constexpr const char* kRope = "--model llama has rotary positions";
constexpr const char* kMomentum = "muon takes Nesterov's step, and sgd does not; leave it out";
constexpr const char* kNoSmoothing = "targets are not smoothed; leave it out, or see --z_loss";
constexpr const char* kNoLora = "all weights are trained: --init_from FOLDER begins with a run's";
constexpr const char* kShuffled = "windows are drawn at random; leave it out";
constexpr const char* kBeams = "there is no beam search; --temperature 0 takes the likeliest token";
constexpr const char* kLength =
    "a sample has --max_new_tokens tokens, whatever they are; leave it out";
constexpr const char* kStream = "a sample is shown as it is chosen; leave it out";
constexpr const char* kInitial = "weights begin as GPT-2's, N(0, 0.02); leave it out";
constexpr const char* kRepeats = "the same command and --seed give the same bits; leave it out";
constexpr const char* kBatches = "no other process loads batches; leave it out";
constexpr const char* kWholeText =
    "all of a text is read; for its first N bytes, type head -c N FILE > PART, and --data PART";
constexpr const char* kOneBatch = "to train on one random batch, type {bench}";

bool has_word(const std::string& words, const std::string& word) {
  return !word.empty() && word.find(' ') == word.npos &&
         (" " + words + " ").find(" " + word + " ") != words.npos;
}

}  // namespace

// clang-format off
const std::vector<OtherProgram>& other_programs() {
  static const std::vector<OtherProgram> programs = {
      {"nanoGPT",
       {{"always_save_checkpoint", "", left_out, kKept},
        {"backend", "*", left_out, kOneProcess},
        {"compile", "", left_out, kCompiled, "train sample eval bench"},
        {"decay_lr", "true", left_out, "the learning rate falls along a cosine by default"},
        {"decay_lr", "false", sets, "schedule = constant, warmup_iters = 0"},
        {"device", "mps", told, "--device cpu uses all cores; there is nothing for Apple's GPUs"},
        {"dtype", "*", left_out, kFloat32, "sample eval"},
        {"eval_only", "false", left_out, "train trains"},
        {"eval_only", "", told, kEvaluates},
        {"init_from", "gpt2*", told, "GPT-2's weights cannot be read; name the folder of a run"},
        {"init_from", "resume", left_out, "the run in out_dir is taken", "sample eval"},
        {"real_data", "", left_out,
         "bench trains on random tokens, which take the same time", "bench"},
        {"wandb_log", "", left_out, kLogged},
        {"wandb_project wandb_run_name", "*", left_out, kLogged}}},
      {"llm.c, train_gpt2cu",
       {{"-i", "", same, "data"},
        {"-j", "", same, "val_data"},
        {"-e", "", told, kSizes},
        {"-o", "", same, "out_dir"},
        {"-lg", "", left_out, "metrics.jsonl holds the memory"},
        {"-n", "", left_out, "every evaluation is followed by a checkpoint"},
        {"-nk -nm", "", left_out, kKept},
        {"-y", "0", left_out, "a run begins anew by default"},
        {"-y", "1", sets, "init_from = resume"},
        {"-b", "", same, "batch_size"},
        {"-t", "", same, "block_size"},
        {"-d", "-1", sets, "gradient_accumulation_steps = 1"},
        {"-d", "", sets, "gradient_accumulation_steps = x / (batch_size * block_size)"},
        {"-x", "", same, "max_iters"},
        {"-k", "cosine", left_out, "the learning rate falls along a cosine by default"},
        {"-k", "constant", sets, "schedule = constant, warmup_iters = 0"},
        {"-k", "", same, "schedule"},
        {"-l", "", same, "learning_rate"},
        {"-u", "", same, "warmup_iters"},
        {"-q", "", sets, "min_lr = x * learning_rate"},
        {"-c", "", same, "weight_decay"},
        {"-sl -sg", "0", left_out, "steps are skipped only where a loss or gradient is not finite"},
        {"-sl -sg", "", told, "there is --grad_clip, and steps that are not finite are skipped"},
        {"-v", "", same, "eval_interval"},
        {"-m", "", same, "eval_iters"},
        {"-s", "", same, "sample_interval"},
        {"-g", "", left_out, "a sample is as long as the context"},
        {"-h", "0", left_out, "there is no HellaSwag"},
        {"-h", "1", told, "there is no HellaSwag; leave it out: a run has its validation loss"},
        {"-a", "0", left_out, "every step has a batch of its own"},
        {"-a", "", told, kOneBatch},
        {"-f", "", left_out, kTf32},
        {"-w", "", left_out, kFloat32},
        {"-ge", "", left_out, kFused},
        {"-r", "0", sets, "recompute = false"},
        {"-r", "", sets, "recompute = true"},
        {"-z -pn -pr -pg -pm -ps -pf", "", left_out, kOneProcess}}},
      {"llm.c, train_gpt2.py",
       {{"input_bin", "", same, "data"},
        {"input_val_bin", "", same, "val_data"},
        {"output_dir", "", same, "out_dir"},
        {"sequence_length", "", same, "block_size"},
        {"total_batch_size", "", sets,
         "gradient_accumulation_steps = x / (batch_size * block_size)"},
        {"num_iterations", "", same, "max_iters"},
        {"model", "d*", told, kSizes},
        {"model", "gpt2*", told, kSizes},
        {"inference_only", "0", left_out, "train trains"},
        {"inference_only", "", told, "to let a run write, type {sample --out_dir FOLDER}"},
        {"learning_rate_decay_frac", "", sets, "min_lr = x * learning_rate"},
        {"val_loss_every", "", same, "eval_interval"},
        {"val_max_steps", "", same, "eval_iters"},
        {"sample_every", "", same, "sample_interval"},
        {"overfit_single_batch", "0", left_out, "every step has a batch of its own"},
        {"overfit_single_batch", "", told, kOneBatch},
        {"tensorcores", "", left_out, kTf32},
        {"flash", "", left_out, kFused},
        {"zero_stage", "*", left_out, kOneProcess},
        {"write_tensors", "0", left_out, "no tensors are written beside the checkpoints"},
        {"write_tensors", "", told, "to see the tensors of a pass, type {look --out_dir FOLDER}"}}},
      {"llama2.c, llm.c's train_llama3.py",
       {{"model", "meta-llama/*", told, kSizes},
        {"ckpt_dir", "", like, "init_from out_dir"},
        {"multiple_of", "", like, "intermediate_size"},
        {"n_heads", "", like, "n_head"},
        {"n_kv_heads", "", like, "n_kv_head"},
        {"n_layers", "", like, "n_layer"},
        {"norm_eps", "", like, "rms_norm_eps"},
        {"tokenizer_path", "", like, "tokenizer"},
        {"use_hf", "", told, "no weights are downloaded; leave it out"},
        {"vocab_size vocab_source", "", told, kVocabulary}}},
      {"Hugging Face",
       {{"adam_beta1", "", like, "beta1"},
        {"adam_beta2", "", like, "beta2"},
        {"adam_epsilon", "", told, kEpsilon},
        {"attn_implementation", "", told, kFused},
        {"bf16 fp16", "", like, "dtype=bfloat16"},
        {"dataloader_drop_last", "", told, kShuffled},
        {"dataloader_num_workers preprocessing_num_workers", "", like, "threads"},
        {"dataset_name train_file", "", like, "data"},
        {"ddp_backend deepspeed local_rank", "", told, kOneProcess},
        {"do_eval", "", told, kEvaluates},
        {"do_sample", "", told, "sample draws; --temperature 0 takes the likeliest token"},
        {"do_train", "", told, "train trains; leave it out"},
        {"eval_steps eval_strategy evaluation_strategy save_steps save_strategy", "", like,
         "eval_interval"},
        {"gradient_checkpointing", "", like, "recompute"},
        {"label_smoothing_factor", "", told, kNoSmoothing},
        {"load_best_model_at_end", "", told, kBest},
        {"logging_dir report_to", "", told, kTensorBoard},
        {"logging_steps", "", like, "log_interval"},
        {"lr_scheduler_type", "", like, "schedule"},
        {"max_grad_norm", "", like, "grad_clip"},
        {"max_length", "", like, "max_new_tokens block_size"},
        {"max_seq_length", "", like, "block_size"},
        {"max_steps num_train_epochs", "", like, "max_iters"},
        {"model_name_or_path pretrained_model_name_or_path", "", like, "init_from out_dir"},
        {"no_cuda use_cpu", "", like, "device=cpu"},
        {"no_repeat_ngram_size", "", like, "repetition_penalty"},
        {"num_beams", "", told, kBeams},
        {"num_return_sequences", "", like, "num_samples"},
        {"num_warmup_steps warmup_ratio warmup_steps", "", like, "warmup_iters"},
        {"optim", "", like, "optimizer"},
        {"overwrite_output_dir", "", like, "overwrite"},
        {"per_device_eval_batch_size per_device_train_batch_size per_gpu_train_batch_size",
         "", like, "batch_size"},
        {"push_to_hub", "", told, "nothing is sent anywhere; leave it out"},
        {"resume_from_checkpoint", "", like, "init_from=resume"},
        {"run_name", "", like, "out_dir"},
        {"save_total_limit", "", told, kKept},
        {"tokenizer_name", "", like, "tokenizer"},
        {"torch_compile", "", told, kCompiled},
        {"torch_dtype", "", like, "dtype"},
        {"typical_p", "", like, "top_p min_p"},
        {"validation_file", "", like, "val_data val_fraction"}}},
      {"minGPT, LitGPT, nanochat, PyTorch's examples",
       {{"accelerator", "", like, "device"},
        {"aspect_ratio", "", like, "n_layer n_embd"},
        {"attn_pdrop dropout_rate embd_pdrop resid_pdrop", "", like, "dropout"},
        {"bptt max_seq_len", "", like, "block_size"},
        {"checkpoint_dir", "", like, "init_from out_dir"},
        {"device_batch_size micro_batch_size", "", like, "batch_size"},
        {"devices nproc_per_node num_nodes", "", told, kOneProcess},
        {"dry_run", "", told, "to compare a few steps and write nothing, type {train --check}"},
        {"embedding_lr matrix_lr scalar_lr unembedding_lr", "", like, "learning_rate"},
        {"emsize nhid", "", like, "n_embd"},
        {"eval_tokens", "", like, "eval_iters"},
        {"final_lr_frac", "", like, "min_lr"},
        {"global_batch_size", "", like, "batch_size gradient_accumulation_steps"},
        {"grad_norm_clip max_norm", "", like, "grad_clip"},
        {"initial_checkpoint_dir", "", like, "init_from"},
        {"log_iter_interval", "", like, "log_interval"},
        {"logger_name", "", told, kTensorBoard},
        {"lr_warmup_steps", "", like, "warmup_iters"},
        {"model_tag work_dir", "", like, "out_dir"},
        {"model_type", "", told, kSizes},
        {"nhead", "", like, "n_head"},
        {"nlayers", "", like, "n_layer"},
        {"resume_from_step", "", like, "init_from=resume"},
        {"sample_only", "", told, "to let a run write, type {sample --out_dir FOLDER}"},
        {"save_interval", "", like, "eval_interval"},
        {"target_param_data_ratio", "", like, "max_iters"},
        {"tied weight_tying", "", told, kTied},
        {"tokenizer_dir", "", like, "tokenizer"},
        {"val_split_fraction", "", like, "val_fraction"},
        {"warmdown_ratio", "", like, "lr_decay_iters"},
        {"words", "", like, "max_new_tokens"}}},
      {"Others",
       {{"-g -n max_tokens n_predict tokens", "", like, "max_new_tokens"},
        {"-p prompt", "", like, "start"},
        {"accum accumulate accumulate_grad_batches accumulation_steps grad_acc grad_accum "
         "grad_accum_steps", "", like, "gradient_accumulation_steps"},
        {"act activation", "", told, kActivation},
        {"adam_eps eps", "", told, kEpsilon},
        {"allow_tf32 tf32", "", told, kTf32},
        {"amp half mixed_precision use_amp", "", like, "dtype=bfloat16"},
        {"attention_dropout attn_dropout emb_dropout embedding_dropout hidden_dropout", "", like,
         "dropout"},
        {"attention_heads head heads num_attention_heads num_heads", "", like, "n_head"},
        {"base_lr initial_lr lr max_lr muon_lr peak_lr", "", like, "learning_rate"},
        {"batch bs eval_batch_size train_batch_size", "", like, "batch_size"},
        {"batch_size block_size eval_interval eval_iters split val_fraction", "", told,
         "eval measures all that the run validates on, in its batches; leave it out", "eval"},
        {"beam_size beams", "", told, kBeams},
        {"betas", "", like, "beta1 beta2"},
        {"block context context_len context_length context_size context_window ctx ctx_size "
         "max_context max_position_embeddings n_ctx n_positions seq_len seq_length seqlen "
         "sequence_len train_seq_len val_seq_len window window_size", "", like, "block_size"},
        {"blocks depth layers n_blocks num_blocks num_hidden_layers num_layers", "", like,
         "n_layer"},
        {"bpe tokenizer_file tokenizer_model vocab vocab_file vocab_path", "", like, "tokenizer"},
        {"checkpoint checkpoint_path ckpt from_pretrained load load_checkpoint load_model "
         "model_path pretrained pretrained_model_name weights", "", like, "init_from out_dir"},
        {"checkpoint_every checkpoint_interval ckpt_every eval_every eval_freq save_checkpoint "
         "save_every save_freq steps_per_eval val_check_interval val_every val_freq val_interval",
         "", like, "eval_interval"},
        {"clip clip_grad clip_grad_norm grad_norm gradient_clip_val gradient_clipping "
         "max_gradient_norm", "", like, "grad_clip"},
        {"compile_model", "", told, kCompiled},
        {"config_file", "", like, "config"},
        {"continue_from hf_checkpoint load_from weights_from", "", like, "init_from"},
        {"cooldown_frac cooldown_steps lr_decay", "", like, "lr_decay_iters"},
        {"corpus data_dir data_files data_path data_root dataset_dir dataset_path shards "
         "text_data text_file train_bin train_data train_data_path train_files", "", like, "data"},
        {"cpu cpu_only", "", like, "device=cpu"},
        {"cuda gpu use_cuda", "", like, "device=cuda"},
        {"d_ff ff_mult ffn_dim mlp_dim mlp_ratio n_inner", "", told, kMlp},
        {"d_model dim emb emb_dim embed_dim embedding_dim embedding_size hidden hidden_dim "
         "hidden_size model_dim n_hidden width", "", like, "n_embd"},
        {"data_seed manual_seed random_seed rng_seed", "", like, "seed"},
        {"ddp distributed fsdp gpus master_addr master_port ngpus nnodes node_rank num_gpus "
         "num_processes processes rank tensor_parallel world_size", "", told, kOneProcess},
        {"decay", "", like, "weight_decay decay_fraction"},
        {"deterministic", "", told, kRepeats},
        {"dev_data eval_data test_data val_bin val_file val_files valid_data valid_file "
         "valid_path validation_data", "", like, "val_data"},
        {"disable_tqdm quiet verbose", "", told,
         "log_interval sets how often a line is shown; leave it out"},
        {"early_stopping patience", "", told, kNoStop},
        {"end_lr eta_min final_lr lr_min min_learning_rate", "", like, "min_lr"},
        {"epoch epochs iterations iters max_epochs max_iterations max_step max_train_steps "
         "n_epochs n_iter n_iters n_steps num_epochs num_steps steps total_steps total_tokens "
         "train_iters train_steps training_steps", "", like, "max_iters"},
        {"eval_batches num_eval_batches val_batches val_iters val_tokens", "", like, "eval_iters"},
        {"exp_name experiment experiment_name folder name output output_path save save_dir "
         "save_model workdir", "", like, "out_dir"},
        {"file files input input_file text", "", like, "data start"},
        {"flash_attention flash_attention_2 flash_attn fused use_flash_attention", "", told,
         kFused},
        {"fp32", "", like, "dtype=float32"},
        {"frequency_penalty presence_penalty repeat_penalty", "", like, "repetition_penalty"},
        {"gpu_id", "", like, "device"},
        {"gqa kv_head kv_heads mqa num_key_value_heads", "", like, "n_kv_head"},
        {"greedy", "", told, "--temperature 0 takes the likeliest token"},
        {"hours max_hours max_time time_limit", "", like, "max_minutes minutes"},
        {"ignore_eos min_length min_new_tokens stop", "", told, kLength, "sample"},
        {"initializer_range", "", told, kInitial},
        {"label_smoothing", "", told, kNoSmoothing},
        {"length", "", like, "max_new_tokens block_size"},
        {"log_dir tensorboard", "", told, kTensorBoard},
        {"log_every log_freq log_steps print_every print_freq print_interval report_every "
         "steps_per_report", "", like, "log_interval"},
        {"lora lora_r lora_rank qlora use_lora", "", told, kNoLora},
        {"max_chars", "", told, kWholeText},
        {"max_new_tokens min_p num_samples repetition_penalty start temperature top_k top_p",
         "", told, kOfSample},
        {"model_name", "", told, kSizes},
        {"moe num_experts", "", told, kNoExperts},
        {"n", "", like, "num_samples"},
        {"n_vocab", "", told, kVocabulary},
        {"nesterov", "", told, kMomentum},
        {"num_workers workers", "", like, "threads"},
        {"opt optimizer_type", "", like, "optimizer"},
        {"out_dir", "", told,
         "where runs are compared, their folders need no name: {report FOLDER}", "report"},
        {"pin_memory", "", told, kBatches},
        {"port", "", told, "there is no server; a browser opens FOLDER/report.html"},
        {"precision", "", like, "dtype"},
        {"project use_wandb wandb wandb_entity wandb_mode wandb_name", "", told, kLogged},
        {"prompt_file", "", told, "type {sample --start FILE:prompt.txt}"},
        {"remat", "", like, "recompute"},
        {"restart resume resume_training", "", like, "init_from=resume"},
        {"rope rotary use_rope", "", told, kRope},
        {"rope_base", "", like, "rope_theta"},
        {"samples", "", like, "num_samples sample_interval"},
        {"shuffle", "", told, kShuffled},
        {"steps_per_epoch", "", like, "max_iters eval_interval"},
        {"stream", "", told, kStream, "sample"},
        {"temp", "", like, "temperature"},
        {"test_size test_split train_split val_ratio val_size val_split validation_split "
         "validation_split_percentage", "", like, "val_fraction"},
        {"tie_embeddings tie_weights", "", told, kTied},
        {"topk", "", like, "top_k"},
        {"topp", "", like, "top_p"},
        {"warmup warmup_epochs", "", like, "warmup_iters"},
        {"wd", "", like, "weight_decay"}}}};
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
      {"tensorboard", "type {report FOLDER --tensorboard DIR}, then tensorboard --logdir DIR"},
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

bool has_name(const OtherName& row, const std::string& name) { return has_word(row.names, name); }

bool holds_for(const OtherName& row, const std::string& command) {
  const bool of_train = row.answer == left_out || (row.answer == told && row.names[0] == '-');
  const std::string all = *row.commands != '\0' ? row.commands : of_train ? "train" : "";
  return all.empty() || has_word(all, command);
}

const OtherName* other_name(const std::string& name, const std::string& given,
                            const std::string& command) {
  const std::optional<bool> truth = truth_of(given);
  const OtherName* any = nullptr;
  for (const OtherProgram& program : other_programs()) {
    for (const OtherName& row : program.names) {
      if (!has_name(row, name) || !holds_for(row, command)) continue;
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
