'use strict';
// What all pages share: elements, numbers, colours, and choices that outlive a reload.

// make('td', {class: 'number', onclick: f}, 'text', element): an element. Text stays text.
function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}
function make_svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element[name] = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

// Calls f when the element's size has changed. In the next frame, because f changes sizes itself.
function on_resize(element, f) {
  new ResizeObserver(() => requestAnimationFrame(f)).observe(element);
}

// Numbers. What is unknown is null everywhere, and is printed as a dash.
const number = x => typeof x === 'number' && isFinite(x) ? x : null;
const numbers = list => Array.isArray(list) ? list.map(number) : [];
const clamp = (x, low, high) => Math.min(high, Math.max(low, x));

// One way to write a number everywhere, with `digits` that count: 1.25e-5, 0.00250, 12,345, 1.25e6.
// power: as a power of ten in any case.
function show_number(x, digits = 4, power = false) {
  if (number(x) === null) return '\u2013';
  if (x === 0 || power && x === 1) return String(x);
  const size = Math.abs(Number(x.toPrecision(digits))), sign = x < 0 ? '\u2212' : '';
  if (power || size >= 1e6 || size < 1e-4)
    return sign + size.toExponential(digits - 1).replace('+', '');
  const all = {minimumSignificantDigits: digits, maximumSignificantDigits: digits};
  return sign + (size >= 10 ** (digits - 1) ? Math.round(Math.abs(x)).toLocaleString('en') :
      size.toLocaleString('en', all));
}
function show_count(x) {
  return number(x) === null ? '\u2013' : x.toLocaleString('en', {maximumFractionDigits: 1});
}
// The same without zeros at the end, for axes and what was chosen: 0.002, 500, 20,000, 3e6, 1e-5.
function show_short(x, digits = 5, power = false) {
  return show_number(x, digits, power).replace(/(\.\d*?)0+(?=e|$)/, '$1').replace(/\.(?=e|$)/, '');
}
// Texts for the ticks of an axis: in one form, with as many digits as it takes to tell them apart.
function show_ticks(ticks) {
  const power = ticks.some(tick => show_short(tick).includes('e'));
  for (let digits = 5;; ++digits) {
    const texts = ticks.map(tick => show_short(tick, digits, power));
    if (digits > 14 || new Set(texts).size === texts.length) return texts;
  }
}
const show_percent = x =>
    number(x) === null ? '\u2013' : (100 * x).toFixed(Math.abs(x) < .1 ? 1 : 0) + ' %';
// Seconds as 0.5 s, 1:33, 2:05:00 or 3 d 4:00:00.
function show_time(seconds) {
  if (number(seconds) === null) return '\u2013';
  if (seconds > 0 && seconds < 10 && seconds % 1) return Number(seconds.toPrecision(2)) + ' s';
  const s = Math.round(seconds), two = x => String(x).padStart(2, '0');
  const days = Math.floor(s / 86400), hours = Math.floor(s / 3600) % 24;
  const minutes = Math.floor(s / 60) % 60;
  return (days ? days + ' d ' : '') +
      (days || hours ? hours + ':' + two(minutes) : minutes) + ':' + two(s % 60);
}
// Characters that would turn the direction of what stands after them are shown as codes.
const undirected = text => String(text).replace(
    /[\u202a-\u202e\u2066-\u2069]/g, c => '\\u' + c.charCodeAt(0).toString(16));
// A token as one can see it: in quotes, as \n and \xc3; or with marks for white space.
const show_token = token => undirected(JSON.stringify(String(token)).replaceAll('\\\\', '\\'));
const marks = {'\n': '\u21b5', ' ': '\u2423', '\t': '\u21e5'};
const visible = token => undirected(token).replace(/[\n \t]/g, c => marks[c]);
// How tokens stand in a text: line ends are marked, and spaces where tokens are longer than letters.
const in_text = tokens => {
  const words = tokens.some(token => token.length > 2);
  return token => undirected(words ? token.replace(/ /g, '\u200b\u2423') : token)
      .replace(/\n/g, '\u21b5\n');
};

// Colours. A ramp goes through its stops; two schemes, light and dark.
const scheme = matchMedia('(prefers-color-scheme: dark)');
const dark = () => scheme.matches;
const on_scheme = draw => scheme.addEventListener('change', draw);
function ramp(stops, t) {
  const at = clamp(t, 0, 1) * (stops.length - 1), k = Math.min(stops.length - 2, Math.floor(at));
  return stops[k].map((v, i) => Math.round(v + (stops[k + 1][i] - v) * (at - k)));
}
// From the page's own colour to a strong one.
const sequential = t => ramp(
    dark() ? [[20, 23, 27], [120, 195, 255]] : [[255, 255, 255], [8, 72, 160]], t);
// The same for maps of many values, with a third stop to tell large values apart.
const graded = t => ramp(
    dark() ? [[27, 32, 40], [24, 104, 160], [110, 200, 230], [250, 245, 190]] :
             [[250, 246, 214], [120, 198, 196], [34, 110, 170], [20, 28, 90]], t);
// Blue below the middle, orange above it.
const diverging = t => ramp(
    dark() ? [[110, 190, 255], [30, 85, 140], [38, 43, 50], [150, 75, 20], [255, 160, 70]] :
             [[0, 62, 130], [90, 160, 215], [243, 244, 246], [240, 160, 90], [165, 60, 0]], t);
const rgb = colour => `rgb(${colour})`;
const ink_on = ([r, g, b]) => .299 * r + .587 * g + .114 * b > 140 ? '#000' : '#fff';
const masked = (i, j) => {  // stripes, for what has no value
  const [even, stripe] =
      dark() ? [[35, 40, 46], [58, 65, 74]] : [[238, 241, 244], [213, 218, 224]];
  return (i + j) % 6 < 2 ? stripe : even;
};
// A pixel a value; the page enlarges them.
function paint(canvas, rows, columns, colour) {
  canvas.width = columns;
  canvas.height = rows;
  const c = canvas.getContext('2d'), image = c.createImageData(columns, rows);
  for (let i = 0; i < rows; ++i) for (let j = 0; j < columns; ++j) {
    const at = 4 * (i * columns + j), [r, g, b] = colour(i, j);
    image.data[at] = r;
    image.data[at + 1] = g;
    image.data[at + 2] = b;
    image.data[at + 3] = 255;
  }
  c.putImageData(image, 0, 0);
}
// The legend of a colour scale: the ramp, and [[place in 0..1, text], ...] below it.
function show_scale(element, colour, ticks) {
  const stops = Array.from({length: 33}, (_, i) => rgb(colour(i / 32)));
  const bar = make('div', {class: 'ramp'});
  bar.style.background = `linear-gradient(to right, ${stops})`;
  element.replaceChildren(bar, ...ticks.map(([place, text]) => {
    const tick = make('span', {}, text);
    tick.style.left = 100 * place + '%';
    return tick;
  }));
}

// What the reader chose, by name. It outlives a reload of the page, and who watches a name learns
// of a change.
const choices = {
  prefix: location.pathname + ' ', watchers: {},
  get(name, otherwise = null) {
    try {
      const text = sessionStorage.getItem(this.prefix + name);
      return text === null ? otherwise : JSON.parse(text);
    } catch { return otherwise; }
  },
  set(name, value) {
    try { sessionStorage.setItem(this.prefix + name, JSON.stringify(value)); } catch { }
    for (const f of this.watchers[name] || []) f(value);
  },
  watch(name, f) { (this.watchers[name] ||= []).push(f); },
};
// Why the page should not reload itself now: names of what is going on.
const busy = new Set();

// Where a table is wider than its box, rows become cards, so that no column is hidden: each cell
// has its heading, data-title, before it (base.css).
function fit_table(box) {
  const fit = () => {
    box.classList.remove('cards');
    box.classList.toggle('cards', box.scrollWidth > box.clientWidth + 1);
  };
  on_resize(box, fit);
  return box;
}
// A text of at most `length` characters, its middle left out: names begin and end with what tells
// them apart.
function middle_cut(text, length) {
  if (text.length <= length) return text;
  const end = Math.ceil((length - 1) / 2), begin = Math.max(length - 1 - end, 0);
  return text.slice(0, begin) + '\u2026' + text.slice(text.length - end);
}
// A text as parts, so that no line ends within an option: --name or --name=value.
const with_options = text => String(text).split(/(--\w+(?:=\S*)?)/).map(
    (part, i) => i % 2 ? make('span', {class: 'option'}, part) : part);

// Buttons of which one is pressed: options are [[value, text], ...].
function button_group(label, options, chosen, choose) {
  const buttons = options.map(([value, text]) => make(
      'button', {type: 'button', 'aria-pressed': String(value === chosen),
                 onclick: () => press(value)}, text));
  function press(value) {
    buttons.forEach((b, i) => b.setAttribute('aria-pressed', String(options[i][0] === value)));
    choose(value);
  }
  return make('div', {class: 'group', role: 'group', 'aria-label': label},
              make('span', {}, label), ...buttons);
}
