// A chart of lines: new LineChart(element, options), then chart.update(options).
//   id       where its choices are kept        label    what it shows, for those who cannot see it
//   x_title, y_title   with units              height   in pixels
//   lines    [{name, x, y, colour: 0.., dash: '6 3', points: true, smooth: true}]; y null: a gap.
//            A line of a run, among several, has also {run, kind}: the legend then has an entry for
//            each run and each kind, and the points of a run have its shape
//   what     is measured, where the lines are named by their runs alone
//   log_x, log_y, zero (y begins at 0)         time     x is in seconds
//   smooth   0: none; towards 1: more          events   [{x, text}]: vertical lines
//   link     an array that charts of the same x share: they point and zoom together
//   legend_of   a line_legend that charts of the same lines share
// Drag to zoom, double click to see all. Keys: left, right, Home, End; +, -, and Escape to see all.

// Exponential moving average, without the pull of its start towards 0.
function smoothed(values, weight) {
  let sum = 0, total = 0;
  return values.map(v => {
    if (v === null) return null;
    sum = weight * sum + (1 - weight) * v;
    total = weight * total + 1 - weight;
    return sum / total;
  });
}

function linear_ticks(from, to, count) {  // at least two
  const raw = (to - from) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find(m => m * power >= raw * .8);
  const ticks = [];
  for (let k = Math.ceil(from / step - 1e-9); k * step <= to + 1e-9 * step; ++k)
    if (ticks.push(k * step) > 100) break;  // steps of rounding alone
  return ticks.length < 2 && count < 20 ? linear_ticks(from, to, count + 1) : ticks;
}
function log_ticks(from, to, count) {
  const decades = Math.log10(to) - Math.log10(from);
  if (decades < .7) return linear_ticks(from, to, count);
  const digits = decades < 1.3 ? [1, 2, 3, 5, 7] : decades < 2.5 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(decades / count / (digits.length > 1 ? 2 : 1)));
  const ticks = [];
  for (let k = Math.floor(Math.log10(from)); k <= Math.log10(to); ++k)
    if (k % every === 0) ticks.push(...digits.map(d => d * 10 ** k));
  return ticks.filter(t => t >= from * .9999 && t <= to * 1.0001);
}
function time_ticks(from, to, count) {
  const raw = (to - from) / count;
  const step = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200,
                86400].find(s => s >= raw);
  if (raw < .5 || !step) return linear_ticks(from, to, count);
  const ticks = [];
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) ticks.push(t);
  return ticks;
}

// From values to pixels, and back.
function make_scale([from, to], [begin, end], log) {
  const f = log ? Math.log : x => x, a = f(from), b = f(to);
  return {
    from, to,
    at: v => begin + (f(v) - a) / (b - a) * (end - begin),
    value: p => {
      const t = a + (p - begin) / (end - begin) * (b - a);
      return log ? Math.exp(t) : t;
    },
  };
}
// Numbers between which an axis has no ticks that differ.
const too_near = (a, b) => Math.abs(b - a) <= 1e-9 * Math.max(Math.abs(a), Math.abs(b));
// The range of values, with some air around it; never empty.
function range_of(values, {log, zero, air}) {
  let from = Infinity, to = -Infinity;
  for (const v of values) {
    if (v < from) from = v;
    if (v > to) to = v;
  }
  if (from > to) return log ? [1, 10] : [0, 1];
  if (too_near(from, to)) to = from;  // all the same but for rounding
  if (log) {
    const more = from === to ? Math.log(1.5) : (Math.log(to) - Math.log(from)) * air;
    const at_most = Math.min(to * Math.exp(more), Number.MAX_VALUE);
    return [Math.max(from / Math.exp(more), Number.MIN_VALUE), at_most];
  }
  if (zero && from > 0) from = 0;
  const more = from === to ? Math.abs(from) / 2 || 1 : (to - from) * air;
  return [zero && from === 0 ? 0 : from - more, to + more];
}

// The index of the x nearest to one; xs ascend.
function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle; else high = middle;
  }
  return x - xs[low] <= xs[high] - x ? low : high;
}

const swatch = (colour, dash, shape = null) => make_svg(
    'svg', {class: 'swatch', viewBox: '0 0 29 10', 'aria-hidden': 'true'},
    make_svg('line', {x1: 0, x2: 29, y1: 5, y2: 5, 'stroke-dasharray': dash,
                      style: `stroke: ${line_colour(colour)}`}),
    shape === null ? null : point_shape(shape, 14.5, 5, shape, 3.2));
// No two numbers have the same colour: after those of base.css, hues that are far apart.
const line_colour = k => k === null || k === undefined ? 'var(--quiet)' :
    k < 12 ? `var(--c${k})` : `hsl(${Math.round(k * 137.5) % 360} 60% var(--more))`;
// The shape of a run's points: a circle, square, diamond, triangle, and these hollow.
function point_shape(k, x, y, colour = k, r = 2.8) {
  const d = [[[0, 1]], [[-1, -1], [1, -1], [1, 1], [-1, 1]],
             [[0, -1.4], [1.4, 0], [0, 1.4], [-1.4, 0]], [[0, -1.3], [1.3, 1], [-1.3, 1]]][k % 4];
  const style = Math.floor(k / 4) % 2 ? `fill: var(--back); stroke: ${line_colour(colour)}; ` +
      'stroke-width: 1.4' : `fill: ${line_colour(colour)}`;
  if (d.length === 1) return make_svg('circle', {cx: x, cy: y, r, style});
  return make_svg('path', {class: 'point', style, d: 'M' + d.map(
      ([a, b]) => (x + a * r).toFixed(1) + ' ' + (y + b * r).toFixed(1)).join('L') + 'Z'});
}

// The legend of one chart, or of several with the same lines, and which of these are hidden.
function line_legend(id) {
  return {id, charts: [], hidden: new Set(choices.get(id + ' hidden', [])), names: '',
          legend: make('div', {class: 'legend'})};
}

class LineChart {
  constructor(element, options) {
    this.options = options;
    this.zoom = {x: null, y: null};
    this.point = null;  // the x that is pointed at
    this.legend_of = options.legend_of || line_legend(options.id);
    this.legend_of.charts.push(this);
    this.svg = make_svg('svg', {class: 'plot', tabindex: 0, role: 'img',
                                'aria-label': options.label +
                                '. The left and right arrow keys read values, + enlarges.'});
    this.tip = make('div', {class: 'tip', 'aria-live': 'polite', hidden: true});
    this.reset = make('button', {type: 'button', class: 'reset', hidden: true,
                                 onclick: () => this.zoom_all(null, null)}, 'Show all');
    this.title = make('div', {class: 'title'});
    this.frame = make('div', {class: 'chart'}, this.title, this.svg, this.tip, this.reset);
    element.append(...(options.legend_of ? [] : [this.legend_of.legend]), this.frame);
    if (options.link) options.link.push(this);
    this.listen();
    on_resize(this.frame, () => {
      if (this.frame.clientWidth !== this.width) this.draw();
    });
    this.draw();
  }
  update(options) {
    if ('time' in options && options.time !== this.options.time) this.zoom = {x: null, y: null};
    Object.assign(this.options, options);
    this.point = null;
    this.draw();
  }

  draw() {
    this.width = this.frame.clientWidth || 600;
    const {options, width} = this, height = options.height || 200;
    this.area = {left: 52, right: width - 14, top: 12, bottom: height - 40};
    this.svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    const shown = options.lines.filter(
        line => !this.names_of(line).some(name => this.legend_of.hidden.has(name)));
    const values = shown.flatMap(line => numbers(line.y)).filter(v => v !== null);
    this.log_y = options.log_y && values.some(v => v > 0);
    this.leaves_out = this.log_y && values.some(v => v <= 0) || options.log_x && shown.some(
        line => numbers(line.x).some((x, i) => x !== null && x <= 0 && number(line.y[i]) !== null));
    this.lines = shown.map(line => this.prepare(line)).filter(line => line.x.length > 0);
    this.make_scales();
    const longest = Math.max(0, ...this.y_ticks().map(([, text]) => text.length));
    if (7 * longest + 12 > this.area.left) {
      this.area.left = 7 * longest + 12;
      this.make_scales();
    }
    this.cursor = make_svg('g');
    const clip = 'clip-' + options.id, {left, right, top, bottom} = this.area;
    this.svg.replaceChildren(
        make_svg('clipPath', {id: clip},  // with room for points at the border
                 make_svg('rect', {x: left - 5, y: top - 5, width: right - left + 10,
                                   height: bottom - top + 10})),
        this.axes(),
        make_svg('g', {'clip-path': `url(#${clip})`}, ...this.events(),
                 ...this.lines.map(line => this.curve(line))),
        this.cursor);
    this.draw_legend();
    this.title.textContent = options.y_title + (this.leaves_out ?
        '; 0 and less have no place on a logarithmic axis' : '');
    const zoomed = this.zoom.x !== null || this.zoom.y !== null;
    this.reset.hidden = !zoomed;
    if (zoomed) busy.add(options.id); else busy.delete(options.id);
    this.point_at(this.point);
  }
  // The line's points that can be drawn, and its smoothed values.
  prepare(line) {
    const {log_x, smooth} = this.options, {log_y} = this, x = [], y = [];
    numbers(line.x).forEach((v, i) => {
      if (v === null || (log_x && v <= 0)) return;
      const value = number(line.y[i]);
      x.push(v);
      y.push(value !== null && log_y && value <= 0 ? null : value);
    });
    const soft = line.smooth && smooth > 0;
    return {...line, x, y: soft ? smoothed(y, smooth) : y, raw: soft ? y : null};
  }
  make_scales() {
    const {left, right, top, bottom} = this.area, {options, zoom, lines} = this;
    const all = range_of(lines.flatMap(line => line.x), {log: options.log_x, air: 0});
    if (!options.log_x && all[0] > 0) all[0] = 0;
    const xs = zoom.x || all;
    const seen = lines.flatMap(line => [line.y, line.raw || []].flatMap(
        y => y.filter((v, i) => v !== null && line.x[i] >= xs[0] && line.x[i] <= xs[1])));
    const ys = zoom.y || range_of(seen, {log: this.log_y, zero: options.zero, air: .05});
    this.x = make_scale(xs, [left, right], options.log_x);
    this.y = make_scale(ys, [bottom, top], this.log_y);
  }

  y_ticks() {
    const {top, bottom} = this.area;
    const ticks = (this.log_y ? log_ticks : linear_ticks)(
        this.y.from, this.y.to, Math.max(2, (bottom - top) / 38));
    return show_ticks(ticks).map((text, i) => [ticks[i], text]);
  }
  axes() {
    const {left, right, top, bottom} = this.area, {options, x, y} = this, group = make_svg('g');
    const line = (name, x1, y1, x2, y2) =>
        group.append(make_svg('line', {class: name, x1, y1, x2, y2}));
    const text = (x, y, anchor, words, name) =>
        group.append(make_svg('text', {x, y, 'text-anchor': anchor, class: name}, words));
    for (const [tick, words] of this.y_ticks()) {
      line('grid', left, y.at(tick), right, y.at(tick));
      text(left - 7, y.at(tick) + 4, 'end', words);
    }
    const x_ticks = options.log_x ? log_ticks : options.time ? time_ticks : linear_ticks;
    let free = -Infinity;  // where the last label ends
    for (const tick of x_ticks(x.from, x.to, Math.max(2, (right - left) / 85))) {
      if (!options.time && Math.abs(tick - Math.round(tick)) > 1e-9) continue;  // no step
      const words = options.time ? show_time(tick) : show_short(tick), half = 3.5 * words.length;
      const at = Math.min(x.at(tick), this.width - half);  // inside the chart
      line('axis', x.at(tick), bottom, x.at(tick), bottom + 4);
      if (at - half < free) continue;
      text(at, bottom + 17, 'middle', words);
      free = at + half + 6;
    }
    line('axis', left, bottom, right, bottom);
    text(right, bottom + 34, 'end', options.x_title, 'title');
    return group;
  }
  events() {
    const {top, bottom} = this.area;
    return (this.options.events || []).map(event => {
      const at = this.x.at(event.x);
      return make_svg('line', {class: 'event', x1: at, x2: at, y1: top, y2: bottom},
                      make_svg('title', {}, event.text));
    });
  }
  curve(line) {
    const style = `stroke: ${line_colour(line.colour)}`, group = make_svg('g');
    if (line.raw) group.append(
        make_svg('path', {class: 'raw', style, d: this.path(line, line.raw)}));
    group.append(make_svg('path', {class: 'line', style, 'stroke-dasharray': line.dash,
                                   d: this.path(line, line.y)}));
    // Of many points, some have a mark, so that runs can be told apart.
    const every = Math.ceil(line.x.length / (line.run === undefined ? 80 : 20));
    const alone = i => line.y[i - 1] == null && line.y[i + 1] == null;  // no line leads there
    line.x.forEach((x, i) => {
      if (line.y[i] === null || !(alone(i) || line.points && (line.x.length - 1 - i) % every === 0))
        return;
      const shape = line.run === undefined ? 0 : line.colour;
      group.append(point_shape(shape, this.x.at(x), this.y.at(line.y[i]), line.colour));
    });
    return group;
  }
  // Of many points in one column of pixels, the lowest and the highest say all.
  path(line, values) {
    const parts = [], few = line.x.length < 2 * this.width;
    let pen = 'M', column = null, low, high;
    const to = (x, v) => {
      parts.push(pen + x.toFixed(1) + ' ' + this.y.at(v).toFixed(1));
      pen = 'L';
    };
    const flush = () => {
      if (column === null) return;
      to(column, low);
      if (high !== low) to(column, high);
      column = null;
    };
    values.forEach((v, i) => {
      if (v === null) { flush(); pen = 'M'; return; }
      const x = this.x.at(line.x[i]);
      if (few) { to(x, v); return; }
      if (column !== null && Math.round(x) !== column) flush();
      if (column === null) { column = Math.round(x); low = high = v; }
      low = Math.min(low, v);
      high = Math.max(high, v);
    });
    flush();
    return parts.join('');
  }

  // What of the legend stands for a line: its name, or its run and its kind.
  names_of(line) {
    return line.run === undefined ? [line.name] : ['run ' + line.run, 'kind ' + line.kind];
  }
  draw_legend() {
    const shared = this.legend_of, {hidden, legend} = shared;
    const lines = shared.charts.map(chart => chart.options.lines)  // of a chart that has them all
        .reduce((most, some) => some.length > most.length ? some : most);
    legend.hidden = lines.length < 2;
    const names = lines.map(line => this.names_of(line)).join('\n');
    if (shared.names === names) return;  // the button that was pressed keeps the focus
    shared.names = names;
    const entries = new Map();  // by name: [what stands in it, its class]
    for (const line of lines) {
      const [first, kind] = this.names_of(line), own = line.run === undefined;
      if (!entries.has(first)) entries.set(first, own ?
          [[swatch(line.colour, line.dash), line.name]] :
          [[swatch(line.colour, null, line.colour), line.run]]);
      if (kind && !entries.has(kind))
        entries.set(kind, [[swatch(null, line.dash), line.kind], 'kind']);
    }
    const sorted = [...entries].sort(([, a], [, b]) => (a.length > 1) - (b.length > 1));
    legend.replaceChildren(...sorted.map(([name, [children, look]]) => make('button', {
      type: 'button', class: look, 'aria-pressed': String(!hidden.has(name)),
      title: look ? 'Show or hide these lines' : 'Show or hide this line',
      onclick: event => {
        const hide = !hidden.has(name);
        if (hide) hidden.add(name); else hidden.delete(name);
        event.currentTarget.setAttribute('aria-pressed', String(!hide));
        choices.set(shared.id + ' hidden', [...hidden]);
        shared.charts.forEach(chart => chart.draw());
      },
    }, ...children)));
  }

  // The values of all lines at the x nearest to the pointer.
  point_all(x) {
    for (const chart of this.options.link || [this]) chart.point_at(x, chart === this);
  }
  point_at(x, own = true) {
    this.point = x;
    this.cursor.replaceChildren();
    const values = x === null ? [] : this.values_at(x);
    this.tip.hidden = values.length === 0;
    if (values.length === 0) return;
    const {top, bottom} = this.area, at = this.x.at(x);
    this.cursor.append(
        make_svg('line', {class: 'cursor', x1: at, x2: at, y1: top, y2: bottom}),
        ...values.map(({line, i}) => make_svg('circle', {
          cx: this.x.at(line.x[i]), cy: this.y.at((line.raw || line.y)[i]), r: 4,
          style: `fill: ${line_colour(line.colour)}`})));
    const name = v => this.options.time ? show_time(v) : 'step ' + show_count(v);
    const what = this.options.what ? this.options.what + ', ' : '';
    const table = values.some(({line}) => line.run !== undefined) ?
        this.tip_by_run(values, x, name) : this.tip_by_line(values, x, name);
    this.tip.replaceChildren(what + name(x), make('table', {}, ...table));
    this.place_tip(at, own);
  }
  // The value as it was measured; what the line shows, if that is smoothed, beside it.
  tip_by_line(values, x, name) {
    return values.map(({line, i}) => make(
        'tr', {}, make('td', {}, swatch(line.colour, line.dash), line.name),
        make('td', {class: 'number'}, show_number((line.raw || line.y)[i])),
        make('td', {class: 'quiet'}, [
          line.raw ? 'smoothed ' + show_number(line.y[i]) : '',
          line.x[i] === x ? '' : 'at ' + name(line.x[i])].filter(Boolean).join(', '))));
  }
  tip_by_run(values, x, name) {
    const kinds = [...new Set(values.map(({line}) => line.kind))];
    const runs = [...new Set(values.map(({line}) => line.run))];
    const cell = found => found === undefined ? '' : show_number((found.line.raw ||
        found.line.y)[found.i]) + (found.line.x[found.i] === x ? '' :
                                   ` (${name(found.line.x[found.i])})`);
    const row = run => {
      const own = values.filter(({line}) => line.run === run), {colour} = own[0].line;
      return make('tr', {}, make('td', {}, swatch(colour, null, colour), run), ...kinds.map(
          kind => make('td', {class: 'number'}, cell(own.find(({line}) => line.kind === kind)))));
    };
    return [make('tr', {class: 'quiet'}, make('td'), ...kinds.map(
        kind => make('td', {class: 'number'}, kind))), ...runs.map(row)];
  }
  // Beside the pointer; below the chart where there is no room, and then of one chart only, because
  // it covers what follows.
  place_tip(at, own) {
    const {tip, width} = this, left = at < width / 2;
    tip.classList.remove('below');
    tip.style.left = tip.style.right = '';
    const below = tip.offsetWidth > width / 2 - 12;
    tip.classList.toggle('below', below);
    tip.hidden = below && !own;
    if (!below) tip.style[left ? 'left' : 'right'] = (left ? at : width - at) + 12 + 'px';
  }
  values_at(x) {
    const air = (this.x.to - this.x.from) * .03;
    return this.lines.flatMap(line => {
      const known = [...line.x.keys()].filter(i => line.y[i] !== null);
      const xs = known.map(i => line.x[i]), i = known[nearest(xs, x)];
      const shown = x >= xs[0] - air && x <= xs[xs.length - 1] + air &&
          line.x[i] >= this.x.from && line.x[i] <= this.x.to;
      return shown ? [{line, i}] : [];
    });
  }
  nearest_x(pixel) {
    const x = this.x.value(pixel), all = this.lines.map(line => line.x[nearest(line.x, x)]);
    const far = v => Math.abs(this.x.at(v) - pixel);
    return all.length ? all.reduce((a, b) => far(b) < far(a) ? b : a) : null;
  }

  zoom_all(x, y) {
    if ([x, y].some(range => range && too_near(...range))) return;
    for (const chart of this.options.link || [this]) {
      chart.zoom = {x, y: chart === this ? y : null};
      chart.point = null;
      chart.draw();
    }
  }
  listen() {
    const {svg} = this;
    let start = null;
    const place = event => {
      const box = svg.getBoundingClientRect(), zoom = this.width / box.width, a = this.area;
      return [clamp((event.clientX - box.left) * zoom, a.left, a.right),
              clamp((event.clientY - box.top) * zoom, a.top, a.bottom)];
    };
    svg.onpointerdown = event => {
      if (event.button !== 0) return;
      start = place(event);
      try { svg.setPointerCapture(event.pointerId); } catch { }
    };
    svg.onpointermove = event => {
      const now = place(event);
      if (start && Math.abs(now[0] - start[0]) > 5) this.select(start, now);
      else this.point_all(this.nearest_x(now[0]));
    };
    svg.onpointerup = event => {
      const from = start, now = place(event);
      start = null;
      if (from && Math.abs(now[0] - from[0]) > 5) this.zoom_to(from, now);
      else this.point_all(this.nearest_x(now[0]));
    };
    svg.onpointercancel = () => { start = null; this.point_all(null); };
    svg.onpointerleave = event => { if (event.pointerType !== 'touch') this.point_all(null); };
    svg.onblur = () => this.point_all(null);
    svg.ondblclick = () => this.zoom_all(null, null);
    svg.onkeydown = event => this.key(event);
  }
  // A drag that is more wide than high keeps the y axis free.
  box(from, to) {
    const {top, bottom} = this.area, order = (a, b) => a < b ? [a, b] : [b, a];
    const [x1, x2] = order(from[0], to[0]), [y1, y2] = order(from[1], to[1]);
    return y2 - y1 > 30 ? {x1, x2, y1, y2, both: true} : {x1, x2, y1: top, y2: bottom, both: false};
  }
  select(from, to) {
    const {x1, x2, y1, y2} = this.box(from, to);
    this.point_all(null);
    this.cursor.replaceChildren(make_svg(
        'rect', {class: 'chosen', x: x1, y: y1, width: x2 - x1, height: y2 - y1}));
  }
  zoom_to(from, to) {
    const {x1, x2, y1, y2, both} = this.box(from, to), {x, y} = this;
    this.zoom_all([x.value(x1), x.value(x2)], both ? [y.value(y2), y.value(y1)] : null);
  }
  key(event) {
    const {left, right} = this.area, line = this.lines.reduce(
        (a, b) => a && a.x.length >= b.x.length ? a : b, null);
    if (!line || event.ctrlKey || event.metaKey || event.altKey) return;
    const seen = line.x.filter(x => x >= this.x.from && x <= this.x.to);
    const i = this.point === null ? seen.length - 1 : nearest(seen, this.point);
    const around = factor => {
      const at = this.x.at(this.point === null ? seen[i] : this.point);
      this.zoom_all([this.x.value(Math.max(left, at + (left - at) * factor)),
                     this.x.value(Math.min(right, at + (right - at) * factor))], null);
    };
    const act = {
      ArrowLeft: () => this.point_all(seen[Math.max(0, i - 1)]),
      ArrowRight: () => this.point_all(seen[Math.min(seen.length - 1, i + 1)]),
      Home: () => this.point_all(seen[0]), End: () => this.point_all(seen[seen.length - 1]),
      '+': () => around(.5), '=': () => around(.5), '-': () => this.zoom_all(null, null),
      Escape: () => this.zoom_all(null, null),
    }[event.key];
    if (!act || seen.length === 0) return;
    event.preventDefault();
    act();
  }
}
