// The page of `inkling look` holds the numbers that the model computes, and the model is as before.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "autograd/fused_ops.h"
#include "autograd/more_ops.h"
#include "autograd/random/generator.h"
#include "data/file.h"
#include "nn/gpt.h"
#include "nn/llama.h"
#include "tests/support/error_of.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_files.h"
#include "train/report/look.h"
#include "train/report/page.h"

namespace ink {
namespace {

using nlohmann::json;

std::vector<unsigned> bytes_of(const json& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned> bytes;
  unsigned held = 0, bits = 0;
  for (const char c : text.get<std::string>()) {
    if (c == '=') break;
    held = held << 6 | static_cast<unsigned>(digits.find(c));
    bits += 6;
    if (bits >= 8) bytes.push_back(held >> (bits -= 8) & 255);
  }
  return bytes;
}

Tensor floats(const json& text, const Shape& shape) {
  const std::vector<unsigned> bytes = bytes_of(text);
  std::vector<float> values;
  for (size_t i = 0; i + 3 < bytes.size(); i += 4)
    values.push_back(std::bit_cast<float>(bytes[i] | bytes[i + 1] << 8 | bytes[i + 2] << 16 |
                                          bytes[i + 3] << 24));
  return from_vector(values, shape);
}

double half(unsigned bits) {
  const double mantissa = bits & 1023, sign = bits >> 15 ? -1 : 1;
  const int exponent = bits >> 10 & 31;
  if (exponent == 31) return mantissa > 0 ? NAN : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24)
                               : std::ldexp(1 + mantissa / 1024, exponent - 15));
}

std::vector<float> halves(const json& text) {
  const std::vector<unsigned> bytes = bytes_of(text);
  std::vector<float> values;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2)
    values.push_back(static_cast<float>(half(bytes[i] | bytes[i + 1] << 8)));
  return values;
}
Tensor numbers(const json& picture) {
  return from_vector(halves(picture.at("values")), Shape{picture.at("rows"), picture.at("shown")});
}

const json& step_of(const json& data, const std::string& module, const std::string& op) {
  for (const json& step : data.at("steps"))
    if (step.at("module") == module && step.at("op") == op) return step;
  throw Error("no step " + module + " " + op);
}
const json& picture_of(const json& step, const std::string& name) {
  for (const json& picture : step.at("pictures"))
    if (picture.at("name") == name) return picture;
  throw Error("no picture " + name);
}

GPTConfig sizes() {
  return {.block_size = 9, .vocab_size = 256, .n_layer = 2, .n_head = 3, .n_embd = 12};
}
GPT small_gpt() {
  manual_seed(3);
  GPT model(sizes());
  model.eval();
  return model;
}
const std::vector<int64_t> kIds = {104, 101, 60, 108, 111, 33, 10};

TEST(Look, HalvesAreRoundedToTheNearest) {
  for (const double x : {0.0, 1.0, -2.5, 65504.0, 1e-3, 6.1e-5, 5.96e-8, 3e-6, 0.1, 1.9999})
    EXPECT_NEAR(half(half_bits(x)), x, std::max(std::abs(x) * 0x1p-11, 0x1p-25)) << x;
  EXPECT_EQ(half_bits(-INFINITY), 0xfc00);
  EXPECT_EQ(half_bits(1e6), 0x7c00);
  EXPECT_TRUE(std::isnan(half(half_bits(NAN))));
  for (unsigned bits = 0; bits < 0x7c00; ++bits) ASSERT_EQ(half_bits(half(bits)), bits);
}

TEST(Look, ProbabilitiesAreThoseOfTheModel) {
  GPT model = small_gpt();
  const json data = look_data(model, ByteTokenizer(), kIds);
  const NoGrad no_grad;
  const Tensor ids = from_vector(kIds, Shape{1, 7}), p = softmax(model(ids).select(0, 0));
  const json& next = data.at("next");
  EXPECT_EQ(next.at("vocabulary"), 256);
  const Tensor logits = floats(next.at("logits"), {7, 256});
  const Tensor order = from_vector(next.at("ids").get<std::vector<int64_t>>(), Shape{7, 256});
  EXPECT_TRUE(allclose(softmax(logits), gather(p, 1, order), 1e-5, 1e-7));
  const Tensor p_next = floats(next.at("p_next"), {6});
  for (size_t i = 0; i < 6; ++i)
    EXPECT_FLOAT_EQ(p_next.tolist()[i], p.tolist()[i * 256 + static_cast<size_t>(kIds[i + 1])]);
  const Tensor shown = numbers(data.at("steps").back().at("pictures")[0]);
  EXPECT_TRUE(allclose(shown, p, 1e-3, 1e-7));
}

TEST(Look, StepsHoldWhatTheModulesCompute) {
  GPT model = small_gpt();
  const json data = look_data(model, ByteTokenizer(), kIds);
  const NoGrad no_grad;
  const Tensor ids = from_vector(kIds, Shape{1, 7});
  const Tensor x = model.wte(ids) + model.wpe.weight.narrow(0, 0, 7), normed = model.h[0]->ln_1(x);
  const auto close = [](const Tensor& a, const Tensor& b) {
    return allclose(a, b.reshape(a.shape()), 1e-3, 1e-4);
  };
  const json positions = step_of(data, "wpe", "add");
  EXPECT_TRUE(
      close(numbers(picture_of(positions, "wpe.weight")), model.wpe.weight.narrow(0, 0, 7)));
  EXPECT_TRUE(close(numbers(picture_of(positions, "output")), x));
  const std::vector<Tensor> qkv = split(model.h[0]->attn->c_attn(normed), 12, 2);
  const json projected = step_of(data, "h.0.attn.c_attn", "linear");
  EXPECT_TRUE(close(numbers(picture_of(projected, "queries")), qkv[0]));
  EXPECT_TRUE(close(numbers(picture_of(projected, "values")), qkv[2]));
  const json attention = step_of(data, "h.0.attn", "causal_attention");
  const Tensor weights = model.h[0]->attn->weights(normed).select(0, 0);
  const std::vector<float> stored = halves(picture_of(attention, "weights").at("values"));
  ASSERT_EQ(stored.size(), 3u * 7 * 8 / 2);
  for (size_t k = 0, row = 0; row < 21; ++row)
    for (size_t j = 0; j <= row % 7; ++j)
      EXPECT_NEAR(stored[k++], weights.tolist()[row * 7 + j], 1e-3);
  const Tensor middle = x + (*model.h[0]->attn)(normed);
  const json second = step_of(data, "h.0.ln_2", "add_layer_norm");
  EXPECT_TRUE(close(numbers(picture_of(second, "residual stream")), middle));
  const Tensor hidden = model.h[0]->mlp->c_fc(model.h[0]->ln_2(middle));
  const json mlp = step_of(data, "h.0.mlp.c_proj", "gelu_linear");
  EXPECT_TRUE(
      close(numbers(picture_of(step_of(data, "h.0.mlp.c_fc", "linear"), "output")), hidden));
  EXPECT_TRUE(close(numbers(picture_of(mlp, "hidden after GELU")), gelu(hidden, Gelu::tanh)));
  EXPECT_EQ(second.at("from"), json({1, 5}));
  // What the model says if it stops there, and at the end.
  const Tensor p = softmax(model.lm_head(model.ln_f(middle))).select(0, 0);
  EXPECT_TRUE(allclose(floats(second.at("stopped").at("p"), {7, 3}), topk(p, 3).values));
}

TEST(Look, AHeadIsKnockedOutAndPutBack) {
  GPT model = small_gpt();
  std::vector<std::vector<double>> before, after;
  for (const Tensor& x : model.parameters()) before.push_back(x.tolist());
  const json data = look_data(model, ByteTokenizer(), kIds), &knocked = data.at("knocked");
  for (const Tensor& x : model.parameters()) after.push_back(x.tolist());
  EXPECT_EQ(before, after);
  EXPECT_EQ(knocked.at("layers"), 2);
  EXPECT_EQ(knocked.at("heads"), 3);
  const NoGrad no_grad;
  const Tensor all = floats(knocked.at("p"), {6, 7, 8}),
               next = floats(knocked.at("p_next"), {6, 6});
  const Tensor ids = from_vector(kIds, Shape{1, 7});
  for (const int64_t head : {0, 4}) {
    GPT other = small_gpt();
    // Head 1 of layer 1 has columns 4 .. 7.
    other.h[static_cast<size_t>(head / 3)]->attn->c_proj.weight.narrow(1, head % 3 * 4, 4).zero_();
    const Tensor p = softmax(other(ids).select(0, 0));
    EXPECT_TRUE(allclose(all.select(0, head), topk(p, 8).values, 1e-5, 1e-7)) << head;
    EXPECT_NEAR(next.tolist()[static_cast<size_t>(head) * 6 + 2], p.tolist()[2 * 256 + 108], 1e-6);
  }
  EXPECT_FALSE(look_data(model, ByteTokenizer(), kIds, {.knocked_heads = 5}).contains("knocked"));
}

TEST(Look, LargeModelsAreShownInPart) {
  GPT model = small_gpt();
  const json data = look_data(model, ByteTokenizer(), kIds, {.bytes = 6000});
  const json picture = step_of(data, "h.0.mlp.c_fc", "linear").at("pictures")[0];
  EXPECT_EQ(picture.at("columns"), 48);
  EXPECT_EQ(picture.at("shown"), 8);
  EXPECT_EQ(halves(picture.at("values")).size(), 7u * 8);
  const GPTConfig gpt2;
  EXPECT_EQ(look_tokens(gpt2), 64);
  EXPECT_EQ(look_tokens({.n_layer = 48, .n_head = 25, .n_embd = 1600}), 16);
  EXPECT_EQ(look_tokens(sizes()), 9);
}

// An attention with a step of its own: scores are lowered by the distance.
struct LowAttention : CausalSelfAttention {
  using CausalSelfAttention::CausalSelfAttention;
  void prepare_scores(Tensor& q, Tensor&, AttentionOptions& options, int64_t) const override {
    options.attn_mask = arange(q.size(2), f32).view({1, 1, 1, q.size(2)}) * 0.5;
  }
};
struct ScaledAttention : CausalSelfAttention {
  using CausalSelfAttention::CausalSelfAttention;
  void prepare_scores(Tensor&, Tensor&, AttentionOptions& options, int64_t) const override {
    options.scale = 40;
  }
};
struct OwnEnd : GPT {
  using GPT::GPT;
  Tensor features(const Tensor& ids) const override { return tanh(GPT::features(ids)) * 3; }
};

TEST(Look, ModelsThatAProgramAdds) {
  manual_seed(4);
  GPT low(sizes(), make_attention<LowAttention>), scaled(sizes(), make_attention<ScaledAttention>);
  OwnEnd own(sizes());
  for (GPT* model : std::vector<GPT*>{&low, &scaled, &own}) model->eval();
  const json data = look_data(low, ByteTokenizer(), kIds);
  const json attention = step_of(data, "h.1.attn", "scaled_dot_product_attention");
  const std::vector<double> expected =
      low.attention_weights(from_vector(kIds, Shape{1, 7}))[1].tolist();
  const std::vector<float> stored = halves(picture_of(attention, "weights").at("values"));
  for (size_t k = 0, row = 0; row < 21; ++row)
    for (size_t j = 0; j <= row % 7; ++j) EXPECT_NEAR(stored[k++], expected[row * 7 + j], 1e-3);
  // Other weights than the page could compute are left out, rather than shown wrong.
  const json shown = look_data(scaled, ByteTokenizer(), kIds);
  for (const json& step : shown.at("steps"))
    EXPECT_TRUE(step.at("op") != "causal_attention" || step.at("pictures").size() == 1);
  const json owned = look_data(own, ByteTokenizer(), kIds);
  bool found = false;
  for (const json& step : owned.at("steps")) found = found || step.at("op") == "tanh";
  EXPECT_TRUE(found);
}

// A Llama's rotary positions have an output of heads, (1, H, T, d), and its norms of queries have
// (1, T, H, d): each is a row for each token, also where d is T.
TEST(Look, ARowIsOfATokenAndHasItsHeadsSideBySide) {
  LlamaConfig config(sizes());
  config.head_dim = 6, config.qk_norm = true;
  Llama model(config);
  model.eval();
  const std::vector<int64_t> ids(kIds.begin(), kIds.begin() + 6);
  const json data = look_data(model, ByteTokenizer(), ids);
  EXPECT_FALSE(data.contains("knocked"));
  const NoGrad no_grad;
  const LlamaAttention& attn = model.model.layers[0].self_attn;
  const Tensor x = model.model.embed_tokens(from_vector(ids, Shape{1, 6}));
  const Tensor normed = model.model.layers[0].input_layernorm(x);
  const Tensor queries = (*attn.q_norm)(attn.q_proj(normed).view({1, 6, 3, 6}));
  const Tensor turned = model.model.rotary_emb(queries.transpose(1, 2), 0).select(0, 0);
  const std::string module = "model.layers.0.self_attn";
  for (const auto& [step, expected] :
       {std::pair(step_of(data, module + ".q_norm", "rms_norm"), queries.select(0, 0)),
        std::pair(step_of(data, module, "rotary"), turned.transpose(0, 1))})
    EXPECT_TRUE(
        allclose(numbers(picture_of(step, "output")), expected.reshape({6, 18}), 1e-3, 1e-4));
  for (const json& step : data.at("steps"))
    for (const json& picture : step.at("pictures")) EXPECT_EQ(picture.at("rows"), 6);
}

TEST(Look, RefusesWhatItCannotShow) {
  GPT model = small_gpt();
  const auto look_at = [&](const std::vector<int64_t>& ids) {
    return error_of([&] { look_data(model, ByteTokenizer(), ids); });
  };
  EXPECT_EQ(look_at({}), "look: expected 1 to 9 tokens, got 0");
  EXPECT_EQ(look_at(std::vector<int64_t>(10)), "look: expected 1 to 9 tokens, got 10");
  EXPECT_EQ(look_at({7}), "(no error)");
}

TEST(Look, ThePageCitesCodeThatIsThere) {
  const std::string steps = detail::page_text("look_steps.js");
  const std::regex cited("code: \\['([^']+)', '([^']+)'\\]");
  int count = 0;
  for (std::sregex_iterator at(steps.begin(), steps.end(), cited), end; at != end; ++at, ++count) {
    const std::string file = read_file(std::string(INKLING_SOURCE_DIR "/") + (*at)[1].str());
    EXPECT_NE(file.find((*at)[2].str()), std::string::npos) << (*at)[2];
  }
  EXPECT_EQ(count, 12);
}

TEST(Look, EveryStepOfAGptHasWords) {
  GPT model = small_gpt();
  const json data = look_data(model, ByteTokenizer(), kIds);
  const std::string steps = detail::page_text("look_steps.js");
  const std::regex row("module: /([^/]*)/, op: /([^/]*)/");
  for (const json& step : data.at("steps")) {
    bool found = false;
    for (std::sregex_iterator at(steps.begin(), steps.end(), row), end; at != end && !found; ++at)
      found = std::regex_search(step.at("module").get<std::string>(), std::regex((*at)[1].str())) &&
              std::regex_search(step.at("op").get<std::string>(), std::regex((*at)[2].str()));
    EXPECT_TRUE(found) << step.at("module") << step.at("op");
  }
}

TEST(Look, TheScriptFindsItsElements) {
  const std::string html = detail::page_text("look.html"), script = detail::page_text("look.js");
  const std::regex used("(?:element|getElementById)\\('([a-z-]+)'\\)");
  int count = 0;
  for (std::sregex_iterator at(script.begin(), script.end(), used), end; at != end; ++at, ++count)
    EXPECT_NE(html.find("id=\"" + (*at)[1].str() + "\""), std::string::npos) << (*at)[1];
  EXPECT_GT(count, 8);
}

class LookCommand : public testing::Test {
 protected:
  void SetUp() override {
    const Ran trained = run_program(
        "train --max_iters 1 --eval_iters 1 --n_layer 1 --n_head 2 --n_embd 8 --block_size 12 "
        "--out_dir " +
        run);
    ASSERT_EQ(trained.code, 0) << trained.err;
  }
  TempFolder folder;
  const std::string run = (folder / "run").string(), file = (folder / "a page.html").string();
  Ran look(const std::string& options) {
    return run_program("look --out_dir " + run + " --out '" + file + "' " + options);
  }
  json data() const {
    const std::string page = read_file(file);
    const size_t begin = page.rfind("\nlook({") + 6, end = page.rfind(");\n</script>");
    return json::parse(page.substr(begin, end - begin));
  }
};

TEST_F(LookCommand, WritesAPage) {
  const Ran ran = look("--start 'Once upon Ona'");
  ASSERT_EQ(ran.code, 0) << ran.err;
  const json shown = data();
  EXPECT_EQ(shown.at("given"), 13);
  EXPECT_EQ(shown.at("tokens").size(), 12u);
  EXPECT_EQ(shown.at("tokens")[0], "n");
  EXPECT_EQ(read_file(file).find("<!-- s"), std::string::npos);
  ASSERT_EQ(look("").code, 0);  // a text of the model's own
  EXPECT_EQ(data().at("tokens").size(), 12u);
  const std::string text = folder.write("text", "Dot").string();
  ASSERT_EQ(look("--start FILE:" + text).code, 0);
  EXPECT_EQ(data().at("tokens"), json({"D", "o", "t"}));
}

TEST_F(LookCommand, ErrorsComeBeforeThePageIsTouched) {
  folder.write("a page.html", "old");
  EXPECT_EQ(look("--start 'a#b'").code, 1);
  EXPECT_EQ(look("--start FILE:/nowhere").code, 1);
  EXPECT_EQ(run_program("look --out_dir /nowhere --out '" + file + "'").code, 1);
  EXPECT_EQ(read_file(file), "old");
  const Ran ran = run_program("look --out /nowhere/x.html --out_dir " + run);
  EXPECT_EQ(ran.code, 1);
  EXPECT_NE(ran.err.find("/nowhere/x.html"), std::string::npos) << ran.err;
  EXPECT_EQ(look("--start ''").code, 0);  // a text that the model writes, as of sample
  EXPECT_NE(read_file(file), "old");
}

}  // namespace
}  // namespace ink
