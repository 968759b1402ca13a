#include "train/cli/attention_page.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "autograd/basic_ops.h"

namespace ink {
namespace {

// The page; the data follow it as a call of show().
constexpr const char* kPage = R"html(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Attention</title>
<style>
  :root { color-scheme: light dark; --back: #ffffff; --ink: #1b1f24; --quiet: #66707c;
          --line: #d5dae0; --mark: #b3261e; }
  @media (prefers-color-scheme: dark) {
    :root { --back: #14171b; --ink: #e8ebee; --quiet: #96a0ab; --line: #3a414a; --mark: #ff8a80; }
  }
  body { margin: 1.5rem auto; padding: 0 1rem; max-width: 75rem; background: var(--back);
         color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
  h1 { font-size: 1.25rem; margin: 0; }
  p { margin: .3rem 0 1rem; color: var(--quiet); max-width: 60rem; }
  #text { font: 15px/1.8 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere;
          margin: 1rem 0; }
  #text span { cursor: pointer; border-radius: 2px; }
  #text .query { outline: 2px solid var(--mark); }
  #text .masked { color: var(--quiet); }
  main { display: flex; flex-wrap: wrap; gap: 2rem; align-items: flex-start; }
  #map { position: relative; width: min(32rem, 84vw); height: min(32rem, 84vw);
         margin: calc(1.4rem + var(--room)) 0 0 calc(1.4rem + var(--room)); }
  main { --room: 1.2rem; }
  #large { width: 100%; height: 100%; cursor: crosshair; }
  #map.pinned #large { outline: 2px solid var(--mark); }
  #row, #column { position: absolute; outline: 2px solid var(--mark); pointer-events: none; }
  #row { left: 0; width: 100%; }
  #column { top: 0; height: 100%; outline-width: 1px; }
  .axis { position: absolute; color: var(--quiet);
          font: 10px/1 ui-monospace, monospace; white-space: pre; }
  .axis span { position: absolute; }
  .axis .at { color: var(--mark); font-weight: bold; background: var(--back); z-index: 1; }
  #rows { left: calc(-.1rem - var(--room)); top: 0; width: var(--room); height: 100%; }
  #rows span { right: .2rem; transform: translateY(-50%); }
  #columns { left: 0; top: calc(-.1rem - var(--room)); width: 100%; height: var(--room); }
  #columns span { bottom: 0; transform: translateX(-50%); }
  .axis-title { position: absolute; color: var(--quiet); font-size: .85rem; white-space: nowrap; }
  .words { --room: 5rem; }
  .words #columns span { writing-mode: vertical-rl; transform: translateX(-50%) rotate(180deg); }
  #rows-title { left: calc(-1.4rem - var(--room)); top: 100%; transform-origin: 0 0;
                transform: rotate(-90deg); }
  #columns-title { left: 0; top: calc(-1.7rem - var(--room)); }
  #scale { position: relative; width: min(32rem, 84vw); height: 2.6rem;
           margin: 1rem 0 0 calc(1.4rem + var(--room));
           color: var(--quiet); font-size: .85rem; }
  #ramp { width: 100%; height: .7rem; }
  #scale span { position: absolute; top: .8rem; transform: translateX(-50%); }
  canvas { box-sizing: border-box; border: 1px solid var(--line); image-rendering: pixelated;
           display: block; }
  #value { min-height: 4.5em; max-width: min(32rem, 84vw);
           margin: .5rem 0 0 calc(1.4rem + var(--room));
           font-variant-numeric: tabular-nums; }
  table { border-spacing: .35rem; }
  th { font-weight: normal; color: var(--quiet); font-size: .85rem; text-align: left; }
  #heads { overflow-x: auto; max-width: 100%; }
  #heads canvas { width: 6rem; height: 6rem; cursor: pointer; }
  #heads canvas.chosen { outline: 2px solid var(--mark); }
</style>
<h1 id="title"></h1>
<p>Each square shows one head. A row is a token that looks, and a column is a token that it looks
at. A stronger colour means a larger weight; the weights of a row add up to 1. Striped pairs are
masked, because the column's token comes later in the text. Point at a pair or at the text to read
its weights. A click pins the pair, and a second click or Escape lets it go. Click a small square
to enlarge it. The left and right arrow keys step through the tokens, up and down through the
heads.</p>
<details open>
<summary>What to look for</summary>
<ul>
<li>A line beside the diagonal: the head looks at the token just before. Many models build on
it.</li>
<li>A strong first column: the head found nothing to look at, and rests on the first token.</li>
<li>Vertical stripes: one kind of token, such as a space or the end of a line, serves all that
follow it.</li>
<li>Short lines away from the diagonal: the text repeats itself, and the head looks at what followed
the last time (an induction head).</li>
<li>An even shade that fades downwards: the head averages all it has seen.</li>
</ul>
</details>
<div id="text"></div>
<main>
  <div>
    <div id="map">
      <canvas id="large"></canvas><div id="row"></div><div id="column"></div>
      <div class="axis-title" id="columns-title">looked at &rarr;</div>
      <div class="axis" id="columns"></div>
      <div class="axis-title" id="rows-title">&larr; looks</div>
      <div class="axis" id="rows"></div>
    </div>
    <div id="scale"><canvas id="ramp" width="256" height="1"></canvas></div>
    <div id="value"></div>
  </div>
  <div id="heads"></div>
</main>
<script>
'use strict';
function show(data) {
  const {title, tokens, layers, heads, causal} = data, n = tokens.length;
  const bytes = Uint8Array.from(atob(data.weights), c => c.charCodeAt(0));
  const words = new DataView(bytes.buffer), size = causal ? n * (n + 1) / 2 : n * n;
  const seen = (i, j) => !causal || j <= i;
  const weight = (head, i, j) =>
      words.getUint16(2 * (head * size + (causal ? i * (i + 1) / 2 : i * n) + j), true) / 65535;
  let head = 0, query = n - 1, key = null, pinned = false;

  // From the page's own colour to a strong one, by the square root: small weights can be seen too.
  const dark = () => matchMedia('(prefers-color-scheme: dark)').matches;
  const mix = w => {
    const [from, to] = dark() ? [[20, 23, 27], [120, 195, 255]] : [[255, 255, 255], [8, 72, 160]];
    return from.map((v, k) => Math.round(v + (to[k] - v) * Math.sqrt(w)));
  };
  const element = id => document.getElementById(id);
  const visible = t => t === '\n' ? '\u21b5\n' : t;
  const named = i => JSON.stringify(tokens[i]) + ' (' + i + ')';

  function paint(canvas, which) {  // a pixel a weight; the page enlarges them
    canvas.width = canvas.height = n;
    const c = canvas.getContext('2d'), image = c.createImageData(n, n);
    const [even, stripe] =
        dark() ? [[35, 40, 46], [58, 65, 74]] : [[238, 241, 244], [213, 218, 224]];
    for (let i = 0; i < n; ++i) for (let j = 0; j < n; ++j) {
      const colour = seen(i, j) ? mix(weight(which, i, j)) : (i + j) % 6 < 2 ? stripe : even;
      image.data.set([...colour, 255], 4 * (i * n + j));
    }
    c.putImageData(image, 0, 0);
  }

  // The tokens beside a side of the square: all, where they fit; else those around the chosen one.
  function label(axis, chosen, side) {
    axis.replaceChildren();
    const length = side === 'top' ? axis.clientHeight : axis.clientWidth;
    const smallest = longer || side === 'top' ? 10 : 7;
    const step = Math.max(length / n, smallest), middle = (chosen + .5) * length / n;
    tokens.forEach((token, i) => {
      const at = middle + (i - chosen) * step;
      if (at < 0 || at > length || (step > length / n && Math.abs(i - chosen) > 8)) return;
      const span = axis.appendChild(document.createElement('span'));
      span.textContent = token === '\n' ? '\u21b5' : token === ' ' ? '\u2423' : token;
      span.style[side] = at + 'px';
      if (i === chosen) span.className = 'at';
    });
  }
  function paint_scale() {
    const c = element('ramp').getContext('2d'), image = c.createImageData(256, 1);
    for (let x = 0; x < 256; ++x) image.data.set([...mix((x / 255) ** 2), 255], 4 * x);
    c.putImageData(image, 0, 0);
  }

  const longer = tokens.some(token => token.length > 2);
  document.querySelector('main').classList.toggle('words', longer);
  const text = element('text'), large = element('large'), map = element('map');
  const small = [], spans = tokens.map((token, i) => {
    const span = text.appendChild(document.createElement('span'));
    span.textContent = visible(token);
    span.onmouseenter = () => { if (!pinned) look(i, null); };
    span.onclick = () => { pin(false); look(i, null); };
    return span;
  });

  function look(i, j) { query = i; key = j; point(); }
  function pin(on) { pinned = on; map.classList.toggle('pinned', on); }
  function point() {
    spans.forEach((span, j) => {
      span.className = j === query ? 'query' : seen(query, j) ? '' : 'masked';
      const w = seen(query, j) ? weight(head, query, j) : 0;
      span.style.background = `rgb(${mix(w)})`;
      span.style.color = w > .25 ? (dark() ? '#000' : '#fff') : '';
    });
    const row = [...tokens.keys()].filter(j => seen(query, j))
        .sort((a, b) => weight(head, query, b) - weight(head, query, a));
    const one = j => named(j) + ' ' + weight(head, query, j).toFixed(4);
    element('value').textContent =
        `layer ${Math.floor(head / heads)}, head ${head % heads}: ${named(query)} looks at ` +
        (key === null ? row.slice(0, 4).map(one).join(', ') :
         seen(query, key) ? one(key) : named(key) + ', masked') + (pinned ? ' (pinned)' : '');
    const column = key === null ? row[0] : key;
    element('row').style.top = 100 * query / n + '%';
    element('column').style.left = 100 * column / n + '%';
    label(element('rows'), query, 'top');
    label(element('columns'), column, 'left');
  }
  function choose(which) {
    head = (which + layers * heads) % (layers * heads);
    small.forEach((canvas, i) => canvas.classList.toggle('chosen', i === head));
    paint(large, head);
    point();
  }

  element('row').style.height = element('column').style.width = 100 / n + '%';
  for (const w of [0, .01, .1, .25, .5, 1]) {
    const tick = element('scale').appendChild(document.createElement('span'));
    tick.textContent = w === 0 ? 'weight 0' : w;
    tick.style.left = 100 * Math.sqrt(w) + '%';
  }
  document.title = element('title').textContent = title;
  const table = element('heads').appendChild(document.createElement('table'));
  for (let layer = 0; layer < layers; ++layer) {
    const row = table.insertRow();
    row.appendChild(document.createElement('th')).textContent = 'layer ' + layer;
    for (let h = 0; h < heads; ++h) {
      const canvas = row.insertCell().appendChild(document.createElement('canvas'));
      const which = layer * heads + h;
      canvas.title = `layer ${layer}, head ${h}`;
      canvas.onclick = () => choose(which);
      small.push(canvas);
    }
  }
  const draw = () => { paint_scale(); small.forEach(paint); choose(head); };
  const look_at = event => {
    const at = large.getBoundingClientRect();
    const index = x => Math.min(n - 1, Math.max(0, Math.floor(x * n)));
    look(index((event.clientY - at.top) / at.height), index((event.clientX - at.left) / at.width));
  };
  large.onmousemove = event => { if (!pinned) look_at(event); };
  large.onclick = event => { pin(!pinned); look_at(event); };
  window.onresize = point;
  document.onkeydown = event => {
    if (event.key === 'Escape') { pin(false); point(); }
    const step =
        {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
    if (!step) return;
    event.preventDefault();
    query = (query + step[1] + n) % n;
    if (step[1]) key = null;
    choose(head + step[0]);
  };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  draw();
}
)html";

std::string base64(const std::string& bytes) {
  static const char* const digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k)
      three = three << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k)
      text += i + k <= bytes.size() ? digits[three >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

// One layer's weights, (n_head, T, T), as 16-bit numbers, the low byte first.
void append_layer(std::string& bytes, const Tensor& weights, bool is_causal) {
  const int64_t T = weights.size(-1);
  const std::vector<double> values = weights.detach().tolist();
  for (int64_t row = 0; row < weights.size(0) * T; ++row) {
    const int64_t seen = is_causal ? row % T + 1 : T;
    for (int64_t j = 0; j < seen; ++j) {
      const double w = values[static_cast<size_t>(row * T + j)];
      INK_CHECK(w >= 0 && w <= 1 + 1e-5, "attention_page: expected weights in [0, 1], got ", w);
      const auto stored = static_cast<uint32_t>(std::lround(std::min(w, 1.0) * 65535));
      bytes += static_cast<char>(stored & 255);
      bytes += static_cast<char>(stored >> 8);
    }
  }
}

}  // namespace

std::string attention_page(const std::string& title, const std::vector<std::string>& tokens,
                           const std::vector<Tensor>& weights, bool is_causal) {
  const auto T = static_cast<int64_t>(tokens.size());
  INK_CHECK(T > 0 && !weights.empty(), "attention_page: expected tokens and layers, got ", T,
            " tokens and ", weights.size(), " layers");
  std::string bytes;
  for (const Tensor& layer : weights) {
    const Shape expected{weights[0].size(0), T, T};
    INK_CHECK(layer.is_floating() && layer.shape() == expected,
              "attention_page: expected weights of shape ", expected, ", got ", layer.shape(), " ",
              layer.dtype());
    append_layer(bytes, layer, is_causal);
  }
  const nlohmann::json data = {{"title", title},           {"tokens", tokens},
                               {"layers", weights.size()}, {"heads", weights[0].size(0)},
                               {"causal", is_causal},      {"weights", base64(bytes)}};
  std::string json = data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  // No text of the model's may end the script.
  for (size_t at = 0; (at = json.find('<', at)) != std::string::npos;)
    json.replace(at, 1, "\\u003c");
  return std::string(kPage) + "show(" + json + ");\n</script>\n</html>\n";
}

}  // namespace ink
