// The sections about one run: parameters, activations, samples, attention, text.

// Fills a section's part for the chosen run, under a selector where there are several runs. fill
// may return a function that shows another step. False: no run has what the section shows.
function per_run({runs}, id, has, fill) {
  if (!runs.some(has)) return false;
  const part = make('div'), select = make('select', {onchange: () => choices.set(
      'run', Number(select.value))}, ...runs.map((run, i) => make('option', {value: i}, run.name)));
  let show_step = null;
  const draw = () => {
    const i = clamp(choices.get('run', runs.findIndex(has)), 0, runs.length - 1);
    select.value = i;
    part.replaceChildren();
    show_step = has(runs[i]) ? fill(runs[i], part) : null;
    if (!has(runs[i])) part.append(make('p', {}, 'This run has none of these data.'));
  };
  if (runs.length > 1) body_of(id).append(make('div', {class: 'controls'}, make(
      'label', {}, make('span', {class: 'quiet'}, 'Run'), select)));
  body_of(id).append(part);
  choices.watch('run', draw);
  for (const name of ['probe', 'sample']) choices.watch(name, () => show_step?.());
  draw();
  return true;
}

const probe_steps = run => numbers(run.probes?.step).map((step, i) => step ?? i);
// The choice `name` is a step; null means the last one, also when the page has grown.
function chosen_step(name, steps) {
  const step = choices.get(name);
  return step === null ? steps.length - 1 : nearest(steps, step);
}
// A slider over steps: {element, show}. show() follows the choice.
function step_slider(name, steps, label, can_play) {
  const last = steps.length - 1, set = i => choices.set(name, i >= last ? null : steps[i]);
  const slider = make('input', {type: 'range', min: 0, max: last, step: 1, 'aria-label': label,
                                oninput: () => set(Number(slider.value))});
  const text = make('output'), element = make('div', {class: 'steps'}, slider, text);
  let timer = null;
  const stop = () => {
    clearInterval(timer);
    timer = null;
    busy.delete('play');
    play.textContent = 'Play';
  };
  const next = () => {
    const i = chosen_step(name, steps);
    if (!element.isConnected || i >= last) stop();
    else set(i + 1);
  };
  const play = make('button', {type: 'button', onclick: () => {
    if (timer) { stop(); return; }
    if (chosen_step(name, steps) === last) set(0);
    timer = setInterval(next, clamp(6000 / steps.length, 120, 700));
    busy.add('play');
    play.textContent = 'Stop';
  }}, 'Play');
  if (can_play) element.prepend(play);
  const show = () => {
    const i = chosen_step(name, steps);
    slider.value = i;
    slider.setAttribute('aria-valuetext', 'step ' + show_count(steps[i]));
    text.textContent = `step ${show_count(steps[i])} (${i + 1} of ${steps.length})`;
  };
  element.hidden = last < 1;
  show();
  return {element, show};
}

// Scales for maps, from the values shown.
function log_scale(values) {
  const [low, high] = range_of(values.filter(v => v > 0), {log: true, air: 0});
  const round = Array.from({length: 5}, (_, k) => [1, 2, 5].map(
      d => d * 10 ** (Math.floor(Math.log10(low)) - 1 + k))).flat();
  const from = round.findLast(v => v <= low * 1.001);
  const to = round.find(v => v >= high * .999 && v >= 2 * from) ||
      10 ** Math.ceil(Math.log10(high));
  return {from, to, log: true, ticks: log_ticks(from, to, 6).map(t => [t, show_short(t)])};
}
function even_scale(values) {  // around 0
  const most = values.reduce((a, v) => Math.max(a, Math.abs(v)), 0) || 1;
  const text = x => show_short(Number(x.toPrecision(2)));
  return {from: -most, to: most, diverging: true,
          ticks: [-most, -most / 2, 0, most / 2, most].map(t => [t, text(t)])};
}
const show_measure = x => show_number(x, 3);
const kUpdateScale = {from: 1e-5, to: 1, log: true, diverging: true, ticks: [
  [1e-5, '1e-5\nhardly moves'], [1e-4, '1e-4'], [3e-3, '0.003\nusual'], [.1, '0.1\ntoo fast'],
  [1, '1']]};
const kShareScale = {from: 0, to: 1, ticks: [0, .25, .5, .75, 1].map(
    t => [t, show_percent(t).replace('.0', '')])};

const kParameters = {
  label: 'Parameters by steps', extra: {key: 'count', title: 'Parameters', number: true},
  measures: [
    {key: 'update_ratio', name: 'update / weight', scale: () => kUpdateScale, show: show_measure,
     at_full_rate: true,
     title: 'norm of one step\u2019s update, divided by the norm of the weight',
     note: 'About 0.001 to 0.01 is usual at the highest learning rate, and more in the first ' +
           'hundred steps. Below 1e-5 a parameter hardly moves. Above 0.1 it is thrown about: if ' +
           'half of all are, the learning rate is too high.'},
    {key: 'turned', name: 'direction', scale: log_scale, show: show_measure, map_only: true,
     title: 'how far the direction changed since the probe before; of a head, the least of its ' +
            'q, k, v and projection',
     note: 'Weight decay shrinks a weight and does not turn it. A part that turns far less than ' +
           'its like is not learning.'},
    {key: 'grad_norm', name: 'gradient norm', scale: log_scale, show: show_measure,
     title: 'norm of the gradient',
     note: 'Layers of one kind should have norms of about the same size. Norms that shrink ' +
           'from layer to layer towards the input mean that gradients vanish; norms that grow, ' +
           'that they explode.'},
    {key: 'weight_norm', name: 'weight norm', scale: log_scale, show: show_measure,
     title: 'norm of the weight',
     note: 'Weights usually grow to a few times their size, in narrow models to ten times. If ' +
           'half of all grow far more, the learning rate is too high or the weight decay too ' +
           'low. One that shrinks to 0 is not used, and one that is many times as large as ' +
           'similar ones was drawn too large.'},
  ],
};
const kActivations = {
  label: 'Activations by steps', extra: {key: 'op', title: 'Op', number: false},
  measures: [
    {key: 'std', name: 'std', scale: log_scale, show: show_measure,
     title: 'standard deviation of the outputs',
     note: 'The standard deviation says how large the outputs of a layer are. Between 0.1 and ' +
           '10 is usual. It should settle as training goes on, and be about the same for ' +
           'similar layers of all blocks.'},
    {key: 'mean', name: 'mean', scale: even_scale, show: show_measure, title: 'mean of the outputs',
     note: 'A mean near 0 (pale) is usual. A mean that is much larger than the standard ' +
           'deviation says that a layer gives out nearly the same, whatever it reads.'},
    {key: 'saturated', name: 'saturated', scale: () => kShareScale, show: show_percent,
     title: 'share of outputs that are saturated',
     note: 'An output is saturated where the function is flat, so that no gradient passes: a ' +
           'GELU at about 0, a tanh near 1. Up to 45 % is usual for a GELU. A layer with nearly ' +
           'all of them saturated does not learn. Layers without such a function are grey.'},
    {key: 'grad_std', name: 'gradient std', scale: log_scale, show: show_measure,
     title: 'standard deviation of the gradient of the outputs',
     note: 'How strongly the loss depends on what a layer gives out. It should be about the ' +
           'same from layer to layer: if it shrinks towards the first layers, these learn ' +
           'slowly.'},
  ],
};

// Parameters and activations: a heat map of one measure over steps, and a table of the last probe.
function show_measured(page, id, spec) {
  const has = run => run.probes?.[id]?.name?.length > 0 && probe_steps(run).length > 0 &&
      present(run).length > 0;
  const present = run => spec.measures.filter(
      m => run.probes[id][m.key]?.some(row => row?.some(v => number(v) !== null)));
  return per_run(page, id, has, (run, part) => fill_measured(run, id, spec, present(run), part));
}
// The highest learning rate over that of each probe, or null: an update is as large as the rate, so
// that a finished run's would look as if nothing moved, although only the rate has fallen.
function rate_factors(run, steps) {
  const table = last_of(run.metrics, 'lr') ? run.metrics : {}, lr = numbers(table.lr);
  const most = lr.reduce((a, v) => Math.max(a, v ?? 0), 0);
  return steps.map(step => {
    const rate = most > 0 ? lr[nearest(numbers(table.step), step)] : null;
    return rate > 0 ? most / rate : null;
  });
}
function fill_measured(run, id, spec, measures, part) {
  const factors = rate_factors(run, probe_steps(run)), scaled = factors.some(f => f !== null);
  measures = measures.map(m => m.at_full_rate && scaled ? {
    ...m, factors, title: m.title + ', scaled to the highest learning rate'} : m);
  const data = run.probes[id], steps = probe_steps(run), names = data.name.map(String);
  const first = measures.some(m => m.key === choices.get(id + ' measure')) ?
      choices.get(id + ' measure') : measures[0].key;
  const note = make('p', {class: 'small'}), box = make('div'), table = make('div');
  const search = make('input', {type: 'search', placeholder: 'filter names', 'aria-label':
                                'Show only names with these words', oninput: () => {
    choices.set(id + ' filter', search.value);
    draw();
  }});
  search.value = choices.get(id + ' filter', '');
  part.append(make('div', {class: 'controls'},
                   button_group('Colours show', measures.map(m => [m.key, m.name]), first, key => {
                     choices.set(id + ' measure', key);
                     draw();
                   }), names.length > 12 ? search : null),
              note, make('div', {class: steps.length > 20 ? 'beside wide' : 'beside'}, box, make(
                  'div', {}, make('h3', {}, `At step ${show_count(steps[steps.length - 1])}`),
                  table)));
  const map = new HeatMap(box, {id, label: spec.label});
  const draw = () => {
    const key = choices.get(id + ' measure'), m = measures.find(m => m.key === key) || measures[0];
    const words = names.length > 12 ? search.value.toLowerCase().split(/\s+/) : [];
    const shown = names.flatMap((name, k) =>
        words.every(word => name.toLowerCase().includes(word)) ? [k] : []);
    const all = data[m.key].flatMap(row => numbers(row)).filter(v => v !== null);
    const value = (i, j) => measured(data, m, j, shown[i]);
    note.textContent = m.note;
    map.update({rows: shown.map(k => names[k]), columns: steps, scale: m.scale(all), value,
                say: (i, j) => `${names[shown[i]]}, step ${show_count(steps[j])}: ` +
                    m.show(value(i, j)) + (m.factors ? ` (measured at the rate of this step: ${
                        m.show(number(data[m.key][j]?.[shown[i]]))})` : ''),
                title: `Colour: ${m.title}. Each column is a probe; its step stands below.`});
    table.replaceChildren(measured_table(id, spec, measures, data, steps, shown));
  };
  draw();
  const row = names.indexOf(choices.get(id + ' row'));  // that a finding is about
  if (row >= 0 && !search.value) map.look(row, steps.length - 1, false);
}
function measured(data, m, probe, k) {
  const value = number(data[m.key][probe]?.[k]), factor = m.factors ? m.factors[probe] : 1;
  return value === null || factor === null ? null : value * factor;
}
function measured_table(id, spec, measures, data, steps, shown) {
  const probe = steps.length - 1;
  const rows = shown.map(k => {
    const row = {name: String(data.name[k]), extra: data[spec.extra.key]?.[k] ?? null};
    for (const m of measures) row[m.key] = measured(data, m, probe, k);
    row.grown = row.weight_norm / number(data.weight_norm?.[0]?.[k]);
    return row;
  });
  const name = row => make('span', {title: row.name}, middle_cut(row.name, 34));
  const columns = [{title: 'Name', value: row => row.name, show: name, class: 'name'}];
  if (data[spec.extra.key]) columns.push(
      {title: spec.extra.title, number: spec.extra.number, value: row => row.extra,
       show: row => spec.extra.number ? show_count(row.extra) : String(row.extra ?? '\u2013')});
  for (const m of measures.filter(m => !m.map_only)) columns.push(
      {title: m.name, number: true, value: row => row[m.key], show: row => m.show(row[m.key])});
  if (data.weight_norm && probe > 0) columns.push(
      {title: 'grown', number: true, value: row => row.grown,
       show: row => isFinite(row.grown) ? show_number(row.grown, 2) + ' \u00d7' : '\u2013'});
  return sortable_table(id, columns, rows);
}

// Samples: the chosen one, and the ones before it where there is room; of several runs, those of
// one step beside each other.
const samples_of = run => (run.samples || []).filter(s => s && typeof s.text === 'string')
    .map((s, i) => ({step: number(s.step) ?? i, text: s.text}));
const article = (title, text) => make('article', {}, make('h3', {}, title),
                                      make('pre', {tabindex: 0}, undirected(text)));
function show_samples(page) {
  const runs = page.runs.filter(run => samples_of(run).length > 0);
  if (runs.length > 1) return samples_beside(runs);
  return per_run(page, 'samples', run => samples_of(run).length > 0, (run, part) => {
    const samples = samples_of(run), steps = samples.map(s => s.step);
    const slider = step_slider('sample', steps, 'Step of the sample', false);
    const columns = make('div', {class: 'samples'});
    part.append(slider.element, columns);
    const show = () => {
      const i = chosen_step('sample', steps);
      slider.show();
      columns.replaceChildren(...samples.slice(Math.max(0, i - 2), i + 1).map(
          ({step, text}) => article('step ' + show_count(step), text)));
    };
    show();
    return show;
  });
}
function samples_beside(runs) {
  const steps = [...new Set(runs.flatMap(run => samples_of(run).map(s => s.step)))]
      .sort((a, b) => a - b);
  const slider = step_slider('sample', steps, 'Step of the samples', false);
  const columns = make('div', {class: 'samples beside-runs'});
  const show = () => {
    const step = steps[chosen_step('sample', steps)];
    slider.show();
    columns.replaceChildren(...runs.map(run => {
      const samples = samples_of(run), last = samples.findLast(s => s.step <= step) || samples[0];
      return article(make('span', {}, swatch(run.colour, null, run.colour),
                          `${run.name}, step ${show_count(last.step)}`), last.text);
    }));
  };
  body_of('samples').append(slider.element, columns);
  choices.watch('sample', show);
  show();
  return true;
}

// Attention.
const tokens_of = run => (run.probes?.text?.tokens || []).map(token => String(token ?? '?'));
function attention_bytes(text) {
  try { return Uint8Array.from(atob(text || ''), c => c.charCodeAt(0)); }
  catch { return new Uint8Array(); }
}
function show_attention(page) {
  const shape = run => run.probes?.attention, has = run => tokens_of(run).length > 0 &&
      shape(run)?.layers > 0 && shape(run)?.heads > 0 && shape(run)?.weights?.some(Boolean) &&
      probe_steps(run).length > 0;
  return per_run(page, 'attention', has, (run, part) => {
    const {layers, heads, weights} = shape(run), tokens = tokens_of(run), n = tokens.length;
    const steps = probe_steps(run), slider = step_slider('probe', steps, 'Step of the probe', true);
    const root = make('div', {'aria-label': 'Attention weights'}), size = n * (n + 1) / 2;
    part.append(slider.element, root);
    const weight = () => {
      const bytes = attention_bytes(weights[chosen_step('probe', steps)]);
      return (head, i, j) => (bytes[head * size + i * (i + 1) / 2 + j] || 0) / 255;
    };
    const view = attention_view(root, {
      tokens, layers, heads, causal: true, weight: weight(), digits: 2,
      chosen: choices.get('attention', {}), changed: chosen => choices.set('attention', chosen)});
    return () => { slider.show(); view.update(weight()); };
  });
}

// The text, token by token.
function show_text(page) {
  const has = run => tokens_of(run).length > 0 && probe_steps(run).length > 0 &&
      run.probes.text.p?.some(row => row?.some(v => number(v) !== null));
  return per_run(page, 'text', has, (run, part) => {
    const view = new TextView(run, part);
    return () => view.draw();
  });
}
class TextView {
  constructor(run, part) {
    this.data = run.probes.text;
    this.tokens = tokens_of(run);
    this.steps = probe_steps(run);
    this.truth = this.data.true?.some(v => number(v) !== null) ? numbers(this.data.true) : null;
    this.at = null;
    this.slider = step_slider('probe', this.steps, 'Step of the probe', true);
    const shown = in_text(this.tokens);
    this.spans = this.tokens.map((token, i) => make(
        'span', {onpointerenter: () => this.look(i), onclick: () => this.look(i)},
        shown(token)));
    this.text = make('div', {class: 'coloured', tabindex: 0, role: 'group', 'aria-label':
                             'The text. The arrow keys move from token to token.',
                             onkeydown: event => this.key(event)}, ...this.spans);
    this.sums = make('p', {class: 'small'});
    this.bars = make('div', {class: 'bars', 'aria-live': 'polite'});
    this.scale = make('div', {class: 'scale'});
    part.append(this.slider.element, this.truth ? this.mode() : '', this.sums, this.text,
                this.bars, this.scale);
    on_scheme(() => this.draw());
    this.draw();
  }
  mode() {
    return make('div', {class: 'controls'}, button_group(
        'Colours show', [['p', 'probability'], ['difference', 'difference from the true one']],
        choices.get('text mode', 'p'), value => { choices.set('text mode', value); this.draw(); }));
  }
  draw() {
    this.slider.show();
    this.p = numbers(this.data.p[chosen_step('probe', this.steps)]);
    const differs = this.truth && choices.get('text mode', 'p') === 'difference';
    this.spans.forEach((span, i) => {
      const p = this.p[i] ?? null, q = this.truth?.[i] ?? null;
      const known = p !== null && (!differs || q !== null);
      const place = differs ? .5 + Math.sign(p - q) * Math.sqrt(Math.abs(p - q)) / 2 : p;
      const colour = !known ? null : (differs ? diverging : sequential)(place);
      span.style.background = colour ? rgb(colour) : '';
      span.style.color = colour ? ink_on(colour) : 'var(--quiet)';
    });
    const root = x => .5 + Math.sign(x) * Math.sqrt(Math.abs(x)) / 2;
    if (differs) show_scale(this.scale, diverging, [
      [0, '\u22121\ntoo low'], ...[-.25, 0, .25].map(x => [root(x), show_short(x)]),
      [1, '+1\ntoo high']]);
    else show_scale(this.scale, sequential, [0, .25, .5, .75, 1].map(
        p => [p, p === 0 ? '0\nprobability' : String(p)]));
    this.sums.textContent = this.loss();
    this.look(this.at);
  }
  // The sums, over the tokens whose probability is known.
  loss() {
    const total = list => list.reduce((sum, p) => sum - Math.log(Math.max(p, 1e-30)), 0);
    const known = this.p.flatMap((p, i) =>
        p !== null && (!this.truth || this.truth[i] !== null) ? [i] : []);
    if (known.length === 0) return 'Nothing was measured at this step.';
    const say = sum => `${show_number(sum)} nats (${show_number(sum / known.length)} per token)`;
    return `Loss over these ${known.length} tokens: ${say(total(known.map(i => this.p[i])))}` +
        (this.truth ? `; best possible: ${say(total(known.map(i => this.truth[i])))}.` : '.');
  }
  look(i) {
    if (this.at !== null) this.spans[this.at].classList.remove('at');
    this.at = i;
    if (i === null) {
      this.bars.replaceChildren(make('p', {class: 'quiet'}, 'Point at a token.'));
      return;
    }
    this.spans[i].classList.add('at');
    const p = this.p[i] ?? null, before = this.tokens.slice(Math.max(0, i - 12), i).join('');
    const bar = (name, p, kind) => {
      const inner = make('div');
      inner.style.width = 100 * clamp(p ?? 0, 0, 1) + '%';
      return [make('span', {}, name), make('div', {class: 'bar ' + kind}, inner),
              make('span', {}, p === null ? 'unknown' :
                   `${show_number(p, 2)} (\u2212ln p = ${p > 0 ? show_number(-Math.log(p), 3) :
                                                        '\u221e'})`)];
    };
    this.bars.replaceChildren(
        make('p', {}, `${show_token(this.tokens[i])} (${i})` +
             (before ? ` after ${show_token(before)}` : ', the first token')),
        ...bar('model', p, ''), ...(this.truth ? bar('true', this.truth[i] ?? null, 'true') : []));
  }
  key(event) {
    const step = {ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1}[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.look(this.at === null ? 0 : clamp(this.at + step, 0, this.tokens.length - 1));
  }
}
