// The page of attention weights holds the weights that the model uses, and only text that it may.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "autograd/fused_ops.h"
#include "autograd/random/generator.h"
#include "nn/gpt.h"
#include "tests/support/error_of.h"
#include "train/cli/attention_page.h"
#include "train/report/page.h"

namespace ink {
namespace {

nlohmann::json data_of(const std::string& page) {
  const size_t begin = page.rfind("attention({") + 10, end = page.rfind(");\n</script>");
  return nlohmann::json::parse(page.substr(begin, end - begin));
}

// The numbers behind base64 of 16-bit words, low byte first.
std::vector<double> stored_weights(const nlohmann::json& data) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned> bytes;
  unsigned held = 0, bits = 0;
  for (const char c : data.at("weights").get<std::string>()) {
    if (c == '=') break;
    held = held << 6 | static_cast<unsigned>(digits.find(c));
    bits += 6;
    if (bits >= 8) bytes.push_back(held >> (bits -= 8) & 255);
  }
  std::vector<double> weights;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2)
    weights.push_back((bytes[i] | bytes[i + 1] << 8) / 65535.0);
  return weights;
}

GPT small_gpt() {
  manual_seed(3);
  GPTConfig config;
  config.block_size = 9;
  config.vocab_size = 11;
  config.n_layer = 2;
  config.n_head = 3;
  config.n_embd = 12;
  return GPT(config);
}

TEST(AttentionPage, HoldsTheWeightsThatTheModelUses) {
  GPT model = small_gpt();
  model.eval();
  const Tensor ids = tensor({{4, 1, 7, 7, 0, 10, 2}}, i64);
  const std::vector<Tensor> layers = model.attention_weights(ids);
  ASSERT_EQ(layers.size(), 2u);
  // The first layer's, by the definition.
  const Tensor x = model.h[0]->ln_1(model.wte(ids) + model.wpe.weight.narrow(0, 0, 7));
  const auto qkv = split(model.h[0]->attn->c_attn(x), 12, 2);
  const auto heads = [](const Tensor& t) { return t.view({7, 3, 4}).transpose(0, 1); };
  const Tensor later = triu(ones({7, 7}), 1) == 1;
  const Tensor scores = matmul(heads(qkv[0]), heads(qkv[1]).transpose(1, 2)) / 2;
  EXPECT_TRUE(allclose(layers[0], softmax(masked_fill(scores, later, -INFINITY)), 1e-5, 1e-6));

  const std::vector<std::string> tokens = {"a", "b", "c", "d", "e", "f", "g"};
  const auto data = data_of(attention_page("title", tokens, layers));
  EXPECT_EQ(data.at("heads"), 3);
  EXPECT_EQ(data.at("layers"), 2);
  const std::vector<double> stored = stored_weights(data);
  ASSERT_EQ(stored.size(), 2u * 3 * 7 * 8 / 2);
  size_t at = 0;
  for (const Tensor& layer : layers) {
    const std::vector<double> weights = layer.tolist();
    for (size_t row = 0; row < 21; ++row) {
      for (size_t j = 0; j <= row % 7; ++j)
        EXPECT_NEAR(stored[at++], weights[row * 7 + j], 0.51 / 65535);
    }
  }
}

TEST(AttentionPage, WithoutAMaskEveryWeightIsThere) {
  const Tensor weights = softmax(randn({2, 3, 3}));
  const auto data = data_of(attention_page("t", {"x", "y", "z"}, {weights}, false));
  const std::vector<double> stored = stored_weights(data), expected = weights.tolist();
  ASSERT_EQ(stored.size(), 18u);
  for (size_t i = 0; i < 18; ++i) EXPECT_NEAR(stored[i], expected[i], 0.51 / 65535);
}

TEST(AttentionPage, TextCannotEndTheScript) {
  const std::string bad = "</script><b>\"\n\xff";
  const std::string page = attention_page(bad, {bad}, {ones({1, 1, 1})});
  EXPECT_EQ(page.find("</script>"), page.rfind("</script>"));
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  EXPECT_EQ(data_of(page).at("tokens")[0].get<std::string>(), "</script><b>\"\n\xef\xbf\xbd");
}

TEST(AttentionPage, TheScriptFindsItsElements) {
  const std::string page = attention_page("t", {"x"}, {ones({1, 1, 1})});
  const std::regex used("getElementById\\('([a-z-]+)'\\)");
  int count = 0;
  for (std::sregex_iterator at(page.begin(), page.end(), used), end; at != end; ++at, ++count)
    EXPECT_NE(page.find("id=\"" + (*at)[1].str() + "\""), std::string::npos) << (*at)[1];
  EXPECT_GT(count, 1);
}

TEST(Page, HasNoNumberThatJsonLacks) {
  const std::string text = page("attention", {}, {{"a", NAN}, {"b", -INFINITY}, {"c", "<"}});
  EXPECT_NE(text.find(R"(attention({"a":null,"b":null,"c":"\u003c"});)"), std::string::npos);
  EXPECT_EQ(text.find("<!-- s"), std::string::npos);
}

TEST(Page, Base64) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo\xff"), "Zm9v/w==");
}

TEST(AttentionPage, RefusesWhatItCannotShow) {
  EXPECT_EQ(error_of([] {
              attention_page("t", {"x"}, {ones({2, 3, 3})});
            }),
            "attention_page: expected weights of shape (2, 1, 1), got (2, 3, 3) float32");
  EXPECT_EQ(error_of([] {
              attention_page("t", {"x"}, {full({1, 1, 1}, 2)});
            }),
            "attention_page: expected weights in [0, 1], got 2");
  EXPECT_EQ(error_of([] { attention_page("t", {}, {}); }),
            "attention_page: expected tokens and layers, got 0 tokens and 0 layers");
  const GPT model = small_gpt();
  EXPECT_EQ(error_of([&] {
              model.attention_weights(zeros({2, 3}, i64));
            }),
            "attention_weights: expected ids (1, T), got (2, 3)");
}

}  // namespace
}  // namespace ink
