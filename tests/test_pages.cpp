// Pages in a browser: their scripts run without an error and show what a reader needs.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "browser.h"
#include "data/file.h"
#include "run_program.h"
#include "temp_files.h"
#include "train/cli/attention_page.h"
#include "train/report/report.h"

namespace ink {
namespace {

namespace fs = std::filesystem;

const std::string kSmall =
    "--n_layer 2 --n_head 2 --n_embd 32 --block_size 32 --batch_size 4 --eval_iters 2 "
    "--final_eval off --seed 7 ";

Ran train(const fs::path& out_dir, const std::string& options) {
  return run_program("train " + kSmall + "--out_dir " + out_dir.string() + " " + options);
}

// A script that names those of `words` that the page does not show, and says if it is too wide.
std::string looks_for(const std::string& words) {
  return "const missing = [" + words +
         "].filter(word => "
         "!document.body.innerText.toLowerCase().includes(word.toLowerCase()));"
         "if (document.documentElement.scrollWidth > innerWidth + 1) missing.push('too wide');"
         "return missing.join(', ');";
}

TEST(Pages, OfARun) {
  if (browser().empty()) GTEST_SKIP() << "there is no Chromium";
  const TempFolder folder;
  const fs::path out = folder / "run";
  ASSERT_EQ(
      train(out, "--max_iters 60 --eval_interval 20 --log_interval 5 --sample_interval 30").code,
      0);
  const std::string page = read_file(out / kReportFile);
  // Each section is there, as wide as it should be, and shows what it is about.
  const std::string script = R"(
    const missing = [];
    for (const id of ['loss', 'speed', 'parameters', 'activations', 'samples', 'attention', 'text',
                      'model']) {
      const section = document.getElementById(id);
      if (!section || section.getBoundingClientRect().height < 80) missing.push(id);
    }
    const words = document.body.innerText;
    for (const word of ['best possible', 'validation', 'learning rate', 'tokens per second',
                        'h.1.attn head 1', 'gelu', 'nats', 'n_embd', 'CausalSelfAttention',
                        'sample --out_dir'])
      if (!words.toLowerCase().includes(word.toLowerCase())) missing.push(word);
    const wide = document.documentElement.scrollWidth > innerWidth + 1;
    return missing.join(', ') + (wide ? ' scrolls sideways' : '');)";
  for (const bool dark : {false, true}) {
    const Browsed browsed = browse(page, script, 1200, dark);
    EXPECT_EQ(browsed.errors, "");
    EXPECT_EQ(browsed.result, "");
  }
  EXPECT_EQ(browse(page, script, 500).result, "");
  // A finding leads to the view that shows it, with its row marked.
  std::string with_finding = page;
  const std::string list = "\"findings\":[";
  with_finding.insert(with_finding.find(list) + list.size(),
                      R"({"level":"fault","text":"odd","section":"parameters",)"
                      R"("measure":"weight_norm","name":"h.1.attn head 1"},)");
  const Browsed led = browse(with_finding, R"(
    document.querySelector('.findings a').click();
    const section = document.getElementById('parameters');
    return section.querySelector('[aria-pressed=true]').textContent + ': ' +
        section.querySelector('.heat-value').textContent.split(',')[0];)");
  EXPECT_EQ(led.errors, "");
  EXPECT_EQ(led.result, "weight norm: h.1.attn head 1");
  // Several runs side by side.
  ASSERT_EQ(train(folder / "other", "--max_iters 20 --eval_interval 10 --learning_rate 1e-3").code,
            0);
  const Ran both = run_program("report " + out.string() + " " + (folder / "other").string() +
                               " --out " + (folder / "both.html").string());
  EXPECT_EQ(both.code, 0) << both.err;
  const Browsed browsed = browse(read_file(folder / "both.html"),
                                 "const t = document.body.innerText;"
                                 "return [t.includes('other'), t.includes('learning_rate'),"
                                 "t.includes('0.001')].join();");
  EXPECT_EQ(browsed.errors, "");
  EXPECT_EQ(browsed.result, "true,true,true");
}

TEST(Pages, OfAttention) {
  if (browser().empty()) GTEST_SKIP() << "there is no Chromium";
  manual_seed(1);
  const Tensor later = triu(ones({5, 5}), 1) > 0;
  const Tensor weights = softmax(masked_fill(randn({2, 5, 5}), later, -INFINITY));
  const std::string page =
      attention_page("Who looks", {"a", "</script>", "\n", "d", "e"}, {weights, weights});
  const Browsed browsed =
      browse(page, looks_for("'Who looks', 'layer 1', '<\\/script>', 'looked at'"));
  EXPECT_EQ(browsed.errors, "");
  EXPECT_EQ(browsed.result, "");
  // The largest map shows the colours of the weights: the diagonal of the first row is 1.
  const Browsed pixel = browse(page,
                               "const c = document.querySelector('canvas').getContext('2d');"
                               "return c.getImageData(0, 0, 1, 1).data.slice(0, 3).join();");
  EXPECT_EQ(pixel.result, "8,72,160");
}

TEST(Pages, OfAForwardPass) {
  if (browser().empty()) GTEST_SKIP() << "there is no Chromium";
  const TempFolder folder;
  const fs::path out = folder / "run", page = folder / "look.html";
  ASSERT_EQ(train(out, "--max_iters 20 --eval_interval 20 --report off").code, 0);
  ASSERT_EQ(
      run_program("look --start 'One day' --out_dir " + out.string() + " --out " + page.string())
          .code,
      0);
  for (const int width : {500, 1200}) {
    const Browsed browsed =
        browse(read_file(page),
               looks_for("'Block 1', 'temperature', 'without one head', 'Logits',"
                         "'Queries, keys and values', 'layer 1'"),
               width);
    EXPECT_EQ(browsed.errors, "");
    EXPECT_EQ(browsed.result, "");
  }
}

}  // namespace
}  // namespace ink
