// Pages in a browser: their scripts run without an error and show what a reader needs.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "data/file.h"
#include "tests/support/browser.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_files.h"
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

using Json = nlohmann::ordered_json;

// A finished run of 100 steps without a model, as read_run() gives it. Its learning rate has fallen
// to a hundredth, and its updates with it.
Json made_run(const std::string& name, double loss = 2) {
  Json run{{"name", name}, {"state", "finished"}, {"step", 100}, {"max_iters", 100}};
  run["config"] = {{"seed", 7}, {"out_dir", name}};
  Json metrics, validation;
  for (int step = 10; step <= 100; step += 10) {
    metrics["step"].push_back(step);
    metrics["train_loss"].push_back(loss * (step % 20 == 0 ? 1.25 : 1));
    metrics["lr"].push_back(1e-3 * (step <= 50 ? 1 : 0.01));
    metrics["elapsed_s"].push_back(step / 7.0);
    metrics["tokens_per_s"].push_back(123456);
  }
  for (const int step : {50, 100}) {
    validation["step"].push_back(step);
    validation["val_loss"].push_back(loss);
    validation["best_possible"].push_back(loss - 0.5);
  }
  run["metrics"] = metrics, run["validation"] = validation;
  const std::vector<std::string> names = {"h.11.attn.c_attn.weight", "h.11.attn.c_proj.weight",
                                          std::string(200, 'a') + "<i>z"};
  run["probes"]["step"] = {50, 100};
  run["probes"]["parameters"] = {{"name", names}, {"count", {8, 8, 8}}};
  for (const char* measure : {"weight_norm", "grad_norm", "turned"})
    run["probes"]["parameters"][measure] = {{0.1, 0.2, 0.3}, {0.1, 0.2, 0.3}};
  run["probes"]["parameters"]["update_ratio"] = {{0.004, 0.004, 0.004}, {4e-5, 4e-5, 4e-5}};
  run["samples"] = {{{"step", 50}, {"text", "early of " + name}},
                    {{"step", 100}, {"text", "late of " + name}}};
  return run;
}

// Words of which the page has none: the script pushes to `wrong` what is not as it should be.
std::string wrong_in(const std::string& script) {
  return "const wrong = [], all = (where, what) => [...where.querySelectorAll(what)];\n"
         "const is = (right, what) => { if (!right) wrong.push(what); };\n"
         "is(document.documentElement.scrollWidth <= innerWidth + 1, 'the page scrolls "
         "sideways');" +
         script + "return wrong.join('; ');";
}

TEST(Pages, OfTenRuns) {
  if (browser().empty()) GTEST_SKIP() << "there is no Chromium";
  std::vector<Json> runs;
  for (int i = 0; i < 13; ++i) runs.push_back(made_run("run" + std::to_string(i), 2 + 0.1 * i));
  runs[3]["name"] = "<b>" + std::string(200, 'n') + "&amp;";
  const std::string page = report_page(runs);
  const std::string script = wrong_in(R"(
    // Each run has a colour, dashes and a shape of its own.
    for (const legend of all(document, '.legend')) {
      const looks = all(legend, 'button:not(.kind) .swatch').map(swatch => swatch.outerHTML);
      is(looks.length === 13 && new Set(looks).size === 13, 'runs that look alike');
    }
    is(all(document, '#loss .legend .kind').length === 3, 'kinds of lines');
    // One legend stands for all charts of the speed, and hides a run in each of them.
    is(all(document, '#speed .legend').length === 1, 'legends of the speed');
    const lines = () => all(document, '#speed .plot path').length;
    const before = lines(), button = document.querySelector('#speed .legend button');
    button.click();
    is(lines() < before - 2, 'a run is hidden in one chart');
    button.click();
    is(lines() === before, 'a run comes back');
    // No column is hidden, and names show where they begin and end.
    for (const box of all(document, '.scroll'))
      is(box.scrollWidth <= box.clientWidth + 1,
         'hidden columns of ' + box.textContent.slice(0, 40));
    for (const box of all(document, '#parameters .heat-names div')) {
      is(box.scrollWidth <= box.clientWidth, 'a name that is cut off');
      is(box.textContent.slice(0, 4) === box.title.slice(0, 4) &&
         box.textContent.slice(-4) === box.title.slice(-4), 'a name without its ends');
    }
    const names = all(document, '#parameters .heat-names div').map(box => box.textContent);
    is(new Set(names).size === names.length, 'names that look alike');
    // Samples of all runs beside each other.
    const samples = all(document, '#samples article');
    is(samples.length === 13, 'samples');
    samples.forEach((article, i) => is(article.offsetHeight > 0 && article.textContent.includes(
        i === 3 ? '<b>nn' : `run${i}, step 100late of run${i}`), 'the sample of run ' + i));
    // A small chart says what it shows.
    const chart = document.querySelector("#speed .chart"), box = chart.getBoundingClientRect();
    chart.querySelector("svg.plot").dispatchEvent(new PointerEvent('pointermove', {
      clientX: box.left + box.width / 2, clientY: box.top + box.height / 2, bubbles: true}));
    is(chart.querySelector('.tip').textContent.startsWith('learning rate, step '), 'tip');
    is(chart.querySelector('.tip').textContent.includes('run12'), 'run of the tip');)");
  for (const int width : {320, 400, 1400}) {
    const Browsed browsed = browse(page, script, width, width == 400);
    EXPECT_EQ(browsed.errors, "");
    EXPECT_EQ(browsed.result, "") << width;
  }
}

TEST(Pages, OfAFinishedRunWithAFault) {
  if (browser().empty()) GTEST_SKIP() << "there is no Chromium";
  Json run = made_run("run");
  run["metrics"]["skipped"] = {3};  // a fault
  run["joined"] = {{"metrics", 5}, {"validation", 1}};
  run["validation"]["best_possible"] = {1e-9, 1e-9};
  for (Json& loss : run["metrics"]["train_loss"]) loss = 0.75 * loss.get<double>();
  const std::string page = report_page({run});
  const std::string script = wrong_in(R"(
    const text = document.body.innerText;
    is(!/[0-9]{4,}([.][0-9]+)? ?%/.test(text), 'percentages that say nothing');
    is(text.includes('+2.000 nats'), 'nats above the best possible');
    is(text.includes('the mean of 5 lines'), 'points that are means');
    const state = document.querySelector('.state');
    is(state.textContent === 'finished, 1 fault', 'state');
    is(getComputedStyle(state).color === getComputedStyle(document.querySelector('.fault b')).color,
       'the colour of the state');
    // The smoothed line does not stand for the value.
    const slider = document.querySelector('#loss input[type=range]');
    slider.value = .6;
    slider.oninput();
    const chart = document.querySelector("#loss .chart"), svg = chart.querySelector("svg.plot");
    svg.dispatchEvent(new KeyboardEvent('keydown', {key: 'End'}));
    const tip = chart.querySelector('.tip').textContent;
    is(/^step 100training1.875smoothed 1.7[0-9]+validation2.000best possible1.000e-9$/.test(tip),
       tip);
    // The best possible loss from the first step to the last.
    const [training, validation, best] = all(svg, 'path.line').map(
        path => path.getAttribute('d').match(/[0-9.]+/g).map(Number));
    is(best[0] === training[0] && best.at(-2) === training.at(-2), 'best possible');
    // The last point is whole.
    const clip = svg.querySelector('clipPath rect');
    const last = all(svg, 'g circle:not([r="4"])').at(-1);
    const size = (element, name) => Number(element.getAttribute(name));
    is(size(last, 'cx') + size(last, 'r') <= size(clip, 'x') + size(clip, 'width'), 'point');
    // Updates as they would be at the highest rate, and as they were.
    const cell = document.querySelector('#parameters tbody td[data-title="update / weight"]');
    is(cell.textContent === '0.00400', 'update ' + cell.textContent);
    document.querySelector('#parameters .heat-box').dispatchEvent(
        new KeyboardEvent('keydown', {key: 'ArrowDown'}));
    const value = document.querySelector('#parameters .heat-value').textContent;
    is(value.includes('0.00400') && value.includes('4.00e-5'), value);
    // A click leaves no ring; the keyboard's is there.
    svg.focus({focusVisible: false});
    is(getComputedStyle(svg).outlineStyle === 'none', 'a ring');
    svg.blur();
    svg.focus({focusVisible: true});
    is(getComputedStyle(svg).outlineStyle !== 'none', 'no ring');)");
  const Browsed browsed = browse(page, script, 1400);
  EXPECT_EQ(browsed.errors, "");
  EXPECT_EQ(browsed.result, "");
}

// Losses of other sets, and of the whole one, are not compared with those of the last evaluations.
TEST(Pages, CompareLossesOfOneSet) {
  if (browser().empty()) GTEST_SKIP() << "there is no Chromium";
  Json run = made_run("run");
  run["validation"] = {{"step", {10, 20, 30, 40}},
                       {"val_loss", {1.0, 3.0, 2.5, 2.25}},
                       {"sampled_loss", {nullptr, nullptr, nullptr, 2.75}},
                       {"val_bpb", {1.5, 4.25, 3.5, 3.25}},
                       {"val_set", {1, 2, 2, 2}}};
  run["config"]["eval_iters"] = 20;
  run["samples"] = Json::array({Json{{"step", 40}, {"text", "turned \u202eround"}}});
  const Browsed one = browse(report_page({run}), "return document.body.innerText;", 1400);
  EXPECT_NE(one.result.find("turned \\u202eround"), std::string::npos) << one.result;
  EXPECT_NE(one.result.find("The lowest validation loss is 2.500, at step 30, over 20 batches"),
            std::string::npos)
      << one.result;
  EXPECT_NE(one.result.find("nats per token, step 40, whole set"), std::string::npos) << one.result;
  Json other = made_run("other");
  run["metrics"]["memory_mb"] = {16.4}, run["memory_mb"] = 1.25, other["memory_mb"] = 1.5;
  const Browsed two = browse(report_page({run, other}), R"(
    const cells = document.querySelectorAll('#top tbody td');
    return [...cells].map(c => c.dataset.title + ' ' + c.textContent).join('; ');)",
                             1400);
  EXPECT_NE(
      two.result.find("Loss 2.250 validation, whole set; Lowest validation 2.500 20 batches; Bits"),
      std::string::npos)
      << two.result;
  EXPECT_NE(two.result.find("Memory 16.4 MB;"), std::string::npos) << two.result;
  EXPECT_NE(two.result.find("Memory 1.50 MB estimated"), std::string::npos) << two.result;
}

// What a script finds on the page of these runs, whose own scripts have no error.
std::string text_of(const std::vector<Json>& runs, const std::string& script) {
  const Browsed browsed = browse(report_page(runs), script, 1400);
  EXPECT_EQ(browsed.errors, "");
  return browsed.result;
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Neighbouring lines of a long log are one point: what is a mean is called so, and of which run.
TEST(Pages, SayWhatALossIs) {
  if (browser().empty()) GTEST_SKIP() << "there is no Chromium";
  Json run = made_run("long"), other = made_run("short");
  run["validation"] = Json::object(), run["joined"] = {{"metrics", 16}, {"validation", 1}};
  other["validation"]["val_answers"] = {nullptr, 0.0008};
  const std::string all = "return document.body.innerText;";
  const std::string one = text_of({run}, all), two = text_of({run, other}, all);
  EXPECT_TRUE(has(one, "step 100, mean of up to 16 lines")) << one;
  EXPECT_TRUE(has(one, "median of means of 16 lines")) << one;
  EXPECT_TRUE(has(one, "training loss, nats per token")) << "a chart without a legend: " << one;
  EXPECT_TRUE(has(one, "The log is long: a point")) << one;
  EXPECT_TRUE(has(two, "The log of long is long: a point")) << two;
  EXPECT_FALSE(has(two, "The log of short")) << two;
  EXPECT_TRUE(has(text_of({other}, all), "; 0.1 % of answers right"));
  const std::string cells =
      text_of({run, other},
              "return [...document.querySelectorAll('#top tbody td[data-title=Loss]')].map("
              "cell => cell.textContent).join('; ');");
  EXPECT_EQ(cells, "2.500 training, mean of up to 16 lines; 2.000 validation");
}

TEST(Pages, SayWhatDiffers) {
  if (browser().empty()) GTEST_SKIP() << "there is no Chromium";
  Json gpt = made_run("gpt"), llama = made_run("llama"), unknown = made_run("unknown");
  unknown["config"] = Json::object();
  gpt["config"]["model"] = "gpt", llama["config"]["model"] = "llama";
  llama["config"]["rope_theta"] = 10000, llama["config"]["n_kv_head"] = 2;
  llama["defaults"] = {{"n_kv_head", 0}};
  const std::string names =
      "return [...document.querySelectorAll('#top .labelled tbody th')].map("
      "cell => cell.textContent).join() || document.body.innerText;";
  EXPECT_EQ(text_of({gpt, llama, unknown}, names), "model,n_kv_head");
  EXPECT_TRUE(has(text_of({gpt, unknown}, names), "No setting that is known differs."));
}

TEST(Pages, OfStepsThatWereSkipped) {
  if (browser().empty()) GTEST_SKIP() << "there is no Chromium";
  Json run = made_run("nan"), other = made_run("other");
  run["validation"] = Json::object();
  for (size_t i = 3; i < 10; ++i) run["metrics"]["train_loss"][i] = nullptr;
  run["metrics"]["skipped"] = {0, 0, 0, 4, 4, 4, 4, 4, 4, 4};
  EXPECT_TRUE(has(text_of({run}, "return document.body.innerText;"),
                  "4 steps were skipped, because a loss or gradient was not finite. The log says "
                  "so at step 40"));
  // Near the last point of a run, the tip has it, though lines without a loss are nearer.
  for (Json& step : other["metrics"]["step"]) step = 100 * step.get<int>();
  const std::string tip = text_of({run, other}, R"(
    const chart = document.querySelector('#loss .chart');
    chart.querySelector('svg.plot').dispatchEvent(new KeyboardEvent('keydown', {key: 'End'}));
    return chart.querySelector('.tip').textContent;)");
  EXPECT_TRUE(has(tip, "nan2.000 (step 30)")) << tip;
}

TEST(Pages, OfARunOfNoSteps) {
  if (browser().empty()) GTEST_SKIP() << "there is no Chromium";
  Json run = made_run("zero");
  run["metrics"] = Json::object(), run.erase("probes");
  run["validation"] = {{"step", {0}}, {"val_loss", {4.0}}};
  EXPECT_EQ(text_of({run}, R"(
    for (const button of document.querySelectorAll('#loss button'))
      if (button.textContent === 'steps, log') button.click();
    return document.querySelector('#loss .title').textContent;)"),
            "validation loss, nats per token; 0 and less have no place on a logarithmic axis");
}

TEST(Pages, NoLabelsRunTogether) {
  if (browser().empty()) GTEST_SKIP() << "there is no Chromium";
  Json run = made_run("run"), probes = {{"step", Json::array()}};
  const Json& parts = run["probes"]["parameters"];
  probes["parameters"] = {{"name", parts["name"]}, {"count", parts["count"]}};
  for (int i = 0; i < 28; ++i) {
    probes["step"].push_back(1000 + 25000 * i);
    for (const char* measure : {"weight_norm", "grad_norm", "turned", "update_ratio"})
      probes["parameters"][measure].push_back({0.1, 0.2, 0.3});
  }
  run["probes"] = probes;
  run["command"] = "./inkling sample --out_dir a1 --temperature=0.5 --max_new_tokens=300";
  run["findings"] = Json::array();
  const std::string together = R"(
    const apart = (where, what) => {
      const boxes = all(where, what).map(box => {
        const range = document.createRange();
        range.selectNodeContents(box);
        return [range.getClientRects()[0], box.textContent];  // of the first line
      }).sort(([a], [b]) => a.left - b.left);
      is(boxes.length > 0, 'labels');
      for (let i = 1; i < boxes.length; ++i)
        is(boxes[i - 1][0].right + 4 < boxes[i][0].left, boxes[i - 1][1] + boxes[i][1]);
    };)";
  const Browsed browsed = browse(report_page({run}), wrong_in(together + R"(
    const part = document.querySelector('#parameters .body > div');
    for (let wide = 250; wide < 700; wide += 7) {
      part.style.width = wide + 'px';
      part.querySelector('[aria-pressed=true]').click();
      apart(part, '.heat-steps span');
    }
    // No line ends within an option, and what is copied is the command.
    document.querySelector('.command').style.width = '310px';
    const code = document.querySelector('.command code'), options = all(code, '.option');
    is(options.length === 3, 'options');
    for (const option of options)
      is(option.getBoundingClientRect().height < 30, 'a break in ' + option.textContent);
    getSelection().selectAllChildren(code);
    is(getSelection().toString() === code.textContent && code.textContent ===
        './inkling sample --out_dir a1 --temperature=0.5 --max_new_tokens=300',
       'copied: ' + getSelection());)"),
                                 1400);
  EXPECT_EQ(browsed.errors, "");
  EXPECT_EQ(browsed.result, "");
  const Tensor even = softmax(zeros({1, 5, 5}));
  const Browsed bar =
      browse(attention_page("A", {"word", "b", "c", "d", "e"}, {even}), wrong_in(together + R"(
    document.getElementById('attention').style.setProperty('--side', '176px');  // of a small screen
    apart(document, '.scale span');)"));
  EXPECT_EQ(bar.errors, "");
  EXPECT_EQ(bar.result, "");
}

// Runs as other programs or accidents leave them.
TEST(Pages, OfOddRuns) {
  if (browser().empty()) GTEST_SKIP() << "there is no Chromium";
  const auto run = [](const std::string& name, const std::vector<Json>& losses) {
    Json made{{"name", name}, {"state", "stopped"}, {"metrics", Json::object()}};
    for (size_t i = 0; i < losses.size(); ++i) {
      made["metrics"]["step"].push_back(i + 1);
      made["metrics"]["train_loss"].push_back(losses[i]);
      made["metrics"]["grad_norm"].push_back(0);
    }
    made["validation"] = Json::object();
    return made;
  };
  const std::vector<Json> runs = {run("<b>" + std::string(200, 'm'), {2.5}),
                                  run("level", std::vector<Json>(30, 0.1)),
                                  run("gap", {3, nullptr, 2, nullptr, nullptr, 1}),
                                  run("zero", {1, 0.5, 0, 0}),
                                  run("lost", {nullptr, nullptr}),
                                  run("huge", {1e-300, 1e300})};
  const std::string script = R"(
    const charts = all(document, '.chart');
    for (const chart of charts) {
      const text = chart.querySelector('svg').outerHTML;
      is(!/NaN|Infinity|undefined/.test(text), 'numbers: ' + text.match(/.{30}(NaN|Infinity)/));
      is(all(chart, 'text').length >= 3, 'an axis without labels');
    }
    is(!document.getElementById('model'), 'an empty section');)";
  std::vector<std::string> pages;
  for (const Json& one : runs) pages.push_back(report_page({one}));
  pages.push_back(report_page(runs));
  const std::vector<std::string> more = {
      "is(all(document, '#loss .plot circle').length === 1, 'the point');",
      "is(all(document, '#loss text').length >= 4, 'labels');",
      "is(all(document, '#loss .plot circle').length === 3, 'points between gaps');",
      "is(document.querySelector('#loss .title').textContent.includes('0 and less'), 'what is "
      "left');",
      "is(charts.length === 1, 'charts of nothing');",
      "is(all(document, '#loss text').some(t => /e[0-9]+$/.test(t.textContent)), 'powers');",
      "is(all(document, '#loss .legend button:not(.kind)').length === 5, 'runs');"};
  for (size_t i = 0; i < pages.size(); ++i) {
    const Browsed browsed = browse(pages[i], wrong_in(script + more[i]), i == 6 ? 320 : 400);
    EXPECT_EQ(browsed.errors, "") << i;
    EXPECT_EQ(browsed.result, "") << i;
  }
}

TEST(Pages, NumbersAndAxesHaveOneForm) {
  if (browser().empty()) GTEST_SKIP() << "there is no Chromium";
  const std::string script = wrong_in(R"(
    const same = (found, expected) => is(found === expected, `${found} for ${expected}`);
    const several = [0, .25, 1234.5, 123456, 1.5e6, 2.5e-4, -2.5e-5, null, NaN];
    same(several.map(x => show_number(x)).join(' '),
         '0 0.2500 1,235 123,456 1.500e6 0.0002500 \u22122.500e-5 \u2013 \u2013');
    same([.002, 500, 20000, 3e6, 1e-5, 1e-10, 1.5e10, 100, 1e300].map(x => show_short(x)).join(' '),
         '0.002 500 20,000 3e6 1e-5 1e-10 1.5e10 100 1e300');
    for (const [from, to] of [[2.1, 4.9], [1.02, 1.98], [.62, .97], [3.00001, 3.00004], [5.1, 5.2],
                              [11, 48], [2.2, 19], [1e-7, 2e9]])
      for (const count of [3, 8]) {
        const ticks = log_ticks(from, to, count), texts = show_ticks(ticks);
        is(ticks.length >= 2 && ticks.length <= 3 * count,
           `${ticks.length} ticks of ${from}, ${to}`);
        is(new Set(texts).size === texts.length, 'labels that are the same: ' + texts);
        const powers = texts.filter(text => text.includes('e')).length;
        is(powers === 0 || powers >= texts.length - 1, 'two forms: ' + texts);
      }
    // Names lose their middle.
    same(middle_cut('abcdefghij', 5), 'ab\u2026ij');
    same(middle_cut('abc', 3), 'abc');)");
  const Browsed browsed = browse(report_page({made_run("run")}), script);
  EXPECT_EQ(browsed.errors, "");
  EXPECT_EQ(browsed.result, "");
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
  // Twelve heads of twelve layers fill the page, and none is out of sight.
  const Tensor even = softmax(zeros({12, 5, 5}).masked_fill(later, -INFINITY));
  const std::string many =
      attention_page("Many", {"a", "b", "c", "d", "e"}, std::vector<Tensor>(12, even));
  for (const int width : {400, 1400}) {
    const Browsed filled = browse(many, wrong_in(R"(
      const heads = document.querySelector('.heads'), box = heads.getBoundingClientRect();
      const all_maps = document.querySelector('.maps').getBoundingClientRect();
      const table = heads.firstChild.getBoundingClientRect();
      is(heads.scrollWidth <= heads.clientWidth, 'heads out of sight');
      is(table.right > all_maps.left + .85 * all_maps.width, 'half of the page is empty');
      if (innerWidth > 1000) is(box.top < all_maps.top + 100, 'heads below the map');)"),
                                  width);
    EXPECT_EQ(filled.errors, "");
    EXPECT_EQ(filled.result, "") << width;
  }
}

// Makes the styles of paper those of the screen.
std::string on_paper() {
  return R"(
    const style = document.head.appendChild(document.createElement('style'));
    style.textContent = [...document.styleSheets].flatMap(sheet => [...sheet.cssRules])
        .filter(rule => rule.media?.mediaText === 'print').flatMap(rule => [...rule.cssRules])
        .map(rule => rule.cssText).join('\n');
    for (const sheet of document.styleSheets)
      for (const rule of sheet.cssRules)
        if (rule.media?.mediaText === 'screen') rule.media.mediaText = 'print';)";
}

TEST(Pages, OfARunOnPaper) {
  if (browser().empty()) GTEST_SKIP() << "there is no Chromium";
  const Browsed paper =
      browse(report_page({made_run("one"), made_run("two")}), wrong_in(on_paper() + R"(
    for (const box of all(document, '.scroll, .heat-box, .tree, .samples pre'))
      is(getComputedStyle(box).maxHeight === 'none', 'a cut ' + box.className);
    for (const table of all(document, 'table'))
      is(table.getBoundingClientRect().right <= innerWidth, 'a table that is too wide');
    for (const box of all(document, '.beside'))
      is(getComputedStyle(box).display === 'block', 'boxes that no page cuts');)"),
             700);
  EXPECT_EQ(paper.errors, "");
  EXPECT_EQ(paper.result, "");
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
  // On paper, too, the heads are there.
  const Browsed paper = browse(read_file(page), wrong_in(on_paper() + R"(
    is(all(document, '.controls').every(box => box.offsetHeight === 0), 'controls');
    for (const box of all(document, '.diagram, .heat-box'))
      is(box.scrollHeight <= box.clientHeight + 1, 'hidden parts of ' + box.className);
    for (const what of ['.harms button', '.diagram button', '.heads canvas'])
      is(all(document, what).length >= 4 && all(document, what).every(
          box => box.offsetHeight > 5 && box.offsetWidth > 5), what);)"));
  EXPECT_EQ(paper.errors, "");
  EXPECT_EQ(paper.result, "");
  for (const int width : {320, 500, 1200}) {
    const Browsed browsed =
        browse(read_file(page),
               looks_for("'Block 1', 'temperature', 'without one head', 'Logits',"
                         "'Queries, keys and values', 'layer 1'"),
               width);
    EXPECT_EQ(browsed.errors, "");
    EXPECT_EQ(browsed.result, "");
  }
}

// Of a model that is no GPT the page says nothing of a GPT's.
TEST(Pages, OfALlamasForwardPass) {
  if (browser().empty()) GTEST_SKIP() << "there is no Chromium";
  const TempFolder folder;
  const fs::path out = folder / "run", page = folder / "look.html";
  ASSERT_EQ(train(out, "--model llama --data task:addition --max_iters 2 --report off").code, 0);
  const Ran ran =
      run_program("look --start 12+3= --out_dir " + out.string() + " --out " + page.string());
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Browsed browsed = browse(read_file(page), wrong_in(R"(
    const parts = all(document, '.diagram h3').map(part => part.textContent).join();
    is(parts === 'Input,Block 0,Block 1,Output', parts);
    for (const box of all(document, '.diagram button'))
      is(box.scrollWidth <= box.clientWidth, 'cut: ' + box.textContent);
    for (const button of all(document, '.diagram button')) {
      button.click();
      is(!document.body.innerText.includes('nn/gpt.h'), 'code of a GPT');
      is(!document.body.innerText.includes('wte'), 'a table of a GPT');
    }
    is(!document.getElementById('heads').innerText.includes('so many'), 'heads');
    is(!document.body.innerText.includes('..'), 'two full stops');)"));
  EXPECT_EQ(browsed.errors, "");
  EXPECT_EQ(browsed.result, "");
}

// Tokens of several bytes: a space can be seen, and half a character is bytes.
TEST(Pages, OfTokensOfSeveralBytes) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 80; ++i) text += "the cat saw the sea, the caf\u00e9 and the \u6f22.\n";
  const std::string file = folder.write("text.txt", text).string(), out = (folder / "run").string();
  ASSERT_EQ(run_program("train " + kSmall + "--max_iters 4 --eval_interval 2 --data " + file +
                        " --tokenizer bpe:280 --out_dir " + out)
                .code,
            0);
  const auto made = [&](const std::string& command, const std::string& option) {
    const fs::path page = folder / "page.html";
    const Ran ran =
        run_program(command + " --start 'the cat saw the caf\u00e9 and \u5b57' --out_dir " + out +
                    option + page.string());
    EXPECT_EQ(ran.code, 0) << ran.err;
    return read_file(page);
  };
  const std::vector<std::string> pages = {made("look", " --out "),
                                          made("sample --max_new_tokens 2", " --attention "),
                                          read_file(folder / "run/report.html")};
  for (const std::string& page : pages) {
    EXPECT_NE(page.find(R"(" the")"), std::string::npos) << "a token of several bytes";
    if (&page != &pages[2]) {
      EXPECT_NE(page.find(R"("\\xe5")"), std::string::npos) << "half a character";
    }
    if (browser().empty()) continue;
    const Browsed browsed = browse(page, wrong_in(R"(
      for (const sample of all(document, 'pre')) sample.remove();  // may end within a character
      const shown = document.body.innerText;
      is(shown.includes('\u2423the'), 'no mark for a space');
      is(!shown.includes('\\\\x'), 'two backslashes');
      is(!shown.includes('\ufffd'), 'a broken character');)"));
    EXPECT_EQ(browsed.errors, "");
    EXPECT_EQ(browsed.result, "");
  }
}

}  // namespace
}  // namespace ink
