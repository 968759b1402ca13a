// The page of `look`: look(data). Its data are described in train/report/look.h.

const bytes_of = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
const floats_of = text => new Float32Array(bytes_of(text).buffer);
function half(bits) {
  const sign = bits >> 15 ? -1 : 1, exponent = bits >> 10 & 31, mantissa = bits & 1023;
  if (exponent === 31) return mantissa ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + mantissa / 1024) : mantissa * 2 ** -24);
}

// A picture of the data: value(row, column), or value(row, column, head).
class Tensor {
  constructor(data) {
    Object.assign(this, data);
    if (this.heads) this.shown = this.columns = this.rows;
    this.size = this.causal ? this.rows * (this.rows + 1) / 2 : this.rows * this.rows;
  }
  all() {
    if (!this.numbers) {
      const view = new DataView(bytes_of(this.values).buffer);
      this.numbers = Float32Array.from(
          {length: view.byteLength / 2}, (_, i) => half(view.getUint16(2 * i, true)));
    }
    return this.numbers;
  }
  value(i, j, head) {
    if (!this.heads) return this.all()[i * this.shown + j];
    if (this.causal && j > i) return null;
    return this.all()[head * this.size + (this.causal ? i * (i + 1) / 2 : i * this.rows) + j];
  }
  // The scale of colours. A few very large numbers do not fade all others.
  scale() {
    const sizes = this.all().filter(isFinite).map(Math.abs).sort();
    const at = share => sizes[Math.floor(share * (sizes.length - 1))] || 0;
    if (this.all().every(v => v >= 0)) {  // weights, probabilities
      const to = at(1) || 1;
      return {from: 0, to, root: true,
              ticks: [0, .1, .25, .5, 1].map(s => [s * to, show_number(s * to, 2)])};
    }
    const to = at(.995) || 1, more = at(1) > to;
    const ticks = [[-to, (more ? '\u2264 ' : '') + '\u2212' + show_number(to, 2)], [0, '0'],
                   [to, (more ? '\u2265 ' : '') + show_number(to, 2)]];
    return {from: -to, to, diverging: true, ticks};
  }
}

// What all parts know: the data and what is chosen. Parts watch it.
class Model {
  constructor(data) {
    Object.assign(this, data);
    this.n = data.tokens.length;
    this.shown = data.tokens.map(visible);
    this.steps = data.steps.map(step => ({
      ...step, about: about_step(step), pictures: step.pictures.map(p => new Tensor(p))}));
    this.next.logits = floats_of(data.next.logits);
    this.next.p_next = floats_of(data.next.p_next);
    for (const list of [data.knocked, ...data.steps.map(step => step.stopped)]) {
      if (!list) continue;
      list.p = floats_of(list.p);
      if (list.p_next) list.p_next = floats_of(list.p_next);
    }
    this.watchers = [];
    this.chosen = {token: Math.floor((this.n - 1) / 2), step: 0, head: null, temperature: 1};
  }
  watch(f) { this.watchers.push(f); f(this.chosen, true); }
  choose(change) {
    Object.assign(this.chosen, change);
    for (const f of this.watchers) f(this.chosen, false, change);
  }
  move(by) { this.choose({token: clamp(this.chosen.token + by, 0, this.n - 1)}); }
  word(id) { return visible(this.words[id] ?? `#${id}`); }
  named(i) { return `${show_token(this.tokens[i])} (${i})`; }
  head_name(head) {
    return `layer ${Math.floor(head / this.knocked.heads)}, head ${head % this.knocked.heads}`;
  }

  // The most probable next tokens after position i: [{id, p}], by softmax(logits / temperature).
  likeliest(i, temperature) {
    const {count, ids, logits} = this.next, row = logits.subarray(i * count, (i + 1) * count);
    const sizes = Array.from(row, v => Math.exp((v - row[0]) / temperature));
    const sum = sizes.reduce((a, b) => a + b, 0);
    return sizes.map((v, k) => ({id: ids[i * count + k], p: v / sum}));
  }
  // The same in a list of the data that holds probabilities.
  listed(list, at) {
    return Array.from({length: list.count}, (_, k) => (
        {id: list.ids[at * list.count + k], p: list.p[at * list.count + k]}));
  }
  // How much -ln p of the true next token grows without a head: after token i, or on average.
  harm(head, i = null) {
    const n = this.n - 1, {p_next} = this.knocked, least = p => Math.max(p, 1e-30);
    const one = k => Math.log(least(this.next.p_next[k]) / least(p_next[head * n + k]));
    if (i !== null) return i < n ? one(i) : null;
    return n ? Array.from({length: n}, (_, k) => one(k)).reduce((a, b) => a + b) / n : null;
  }
}

// The text, coloured by the probability of each token.
function show_look_text(model, element) {
  const shown = in_text(model.tokens);
  const spans = model.tokens.map((token, i) => make(
      'span', {onclick: () => model.choose({token: i})}, shown(token)));
  const words = model.tokens.some(token => token.length > 2) ? ' words' : '';
  const box = make('div', {class: 'chips' + words, tabindex: 0, role: 'group', 'aria-label':
                           'The text. The left and right arrow keys choose a token.'}, ...spans);
  element.append(box);
  const draw = () => {
    spans.forEach((span, i) => {
      const p = i ? model.next.p_next[i - 1] : null, colour = sequential(p ?? 0);
      span.style.background = p === null ? '' : rgb(colour);
      span.style.color = p === null ? 'var(--quiet)' : ink_on(colour);
      span.title = p === null ? 'the first token' : `probability ${show_number(p, 2)}`;
    });
    show_scale(document.getElementById('text-scale'), sequential, [0, .25, .5, .75, 1].map(
        p => [p, p === 0 ? '0\nprobability' : String(p)]));
  };
  on_scheme(draw);
  draw();
  model.watch(({token}) =>
      spans.forEach((span, i) => span.classList.toggle('at', i === token)));
}

// Bars of what comes next.
function show_next(model, element, controls) {
  const slider = make('input', {type: 'range', min: .1, max: 2, step: .1, value: 1, oninput:
                                () => model.choose({temperature: Number(slider.value)})});
  const output = make('output');
  controls.append(make('label', {}, 'Temperature ', slider, output));
  model.watch(({token, head, temperature}) => {
    slider.disabled = head !== null;
    output.textContent = (head === null ? temperature : 1).toFixed(1);
    element.replaceChildren(...next_bars(model, token, head, head === null ? temperature : 1));
  });
}
function next_bars(model, token, head, temperature) {
  const all = model.likeliest(token, temperature), follows = model.ids[token + 1];
  const without = head === null ? null : model.listed(model.knocked, head * model.n + token);
  const rows = all.slice(0, 8), has = id => rows.some(row => row.id === id);
  for (const {id} of without ? without.slice(0, 4) : [])
    if (!has(id)) rows.push(all.find(row => row.id === id) || {id, p: null});
  if (follows !== undefined && !has(follows))
    rows.push(all.find(row => row.id === follows) || {id: follows, p: model.next.p_next[token]});
  const p_without = id => without.find(row => row.id === id)?.p ??
      (id === follows ? model.knocked.p_next[head * (model.n - 1) + token] : null);
  const bar = (kind, p) => {
    const inner = make('div');
    inner.style.width = 100 * (p || 0) + '%';
    return make('div', {class: 'bar ' + kind}, inner);
  };
  const number_of = p => p === null ? '\u2013' : p < .0005 ? '<0.001' : p.toFixed(3);
  const cells = rows.flatMap(({id, p}) => {
    const kind = id === follows ? 'true-next' : '', q = without ? p_without(id) : null;
    return [make('code', {class: kind}, model.word(id)),
            make('div', {}, bar(kind, p), without ? bar('without', q) : null),
            make('span', {class: kind}, number_of(p) + (without ? ` \u2192 ${number_of(q)}` : '') +
                 (id === follows ? ' follows' : ''))];
  });
  const before = model.shown.slice(Math.max(0, token - 20), token + 1).join('');
  return [make('p', {}, 'After ', make('code', {}, (token > 20 ? '\u2026' : '') + before), ':'),
          make('div', {class: 'bars'}, ...cells),
          make('p', {class: 'small quiet'}, next_note(model, token, head, temperature))];
}
function next_note(model, token, head, temperature) {
  const {count, vocabulary, p_next} = model.next, follows = token + 1 < model.n, notes = [];
  if (follows && temperature === 1)
    notes.push(`The loss here, \u2212ln of the probability of what follows, is ` +
               `${show_number(-Math.log(p_next[token]), 3)} nats.`);
  if (!follows) notes.push('This is the end of the text: the model would draw one of these.');
  if (count < vocabulary)
    notes.push(`Shares among the ${count} most probable of ${vocabulary} tokens.`);
  if (head !== null)
    notes.push(`Thin bars and second numbers: without ${model.head_name(head)}, at temperature ` +
               `1; of these the page knows the ${model.knocked.count} most probable and what ` +
               'follows.');
  return notes.join(' ');
}

// The table of heads that can be taken away.
function show_heads(model, element) {
  if (!model.knocked) {
    element.append(make('p', {}, 'No head was tried. That works for a GPT with the usual ' +
                        'attention, of not too many heads.'));
    return;
  }
  const {layers, heads} = model.knocked, buttons = [];
  const table = make('table', {class: 'harms', style: `--heads: ${heads}`});
  table.createTHead().insertRow().append(...['head', ...Array(heads).keys()].map(
      name => make('th', {scope: 'col'}, String(name))));
  const body = table.createTBody();
  for (let layer = 0; layer < layers; ++layer) {
    const row = body.insertRow();
    row.append(make('th', {scope: 'row'}, 'layer ' + layer));
    for (let h = 0; h < heads; ++h) {
      const head = layer * heads + h;
      buttons.push(make('button', {type: 'button', onclick: () => model.choose(
          {head: model.chosen.head === head ? null : head})}));
      row.append(make('td', {}, buttons[head]));
    }
  }
  let here = false;
  const mode = button_group('Over', [[false, 'all tokens'], [true, 'the chosen token']], here,
                            value => { here = value; draw(); });
  const scale = make('div', {class: 'scale'}), words = make('p', {class: 'small'});
  const draw = () => {
    const {token, head: chosen} = model.chosen, text = x => x === null ? '\u2013' :
        (x < 0 ? '\u2212' : '+') + show_number(Math.abs(x), 2);
    const harms = buttons.map((_, head) => model.harm(head, here ? token : null));
    const most = Math.max(...harms.map(x => Math.abs(x ?? 0)), 1e-9);
    buttons.forEach((button, head) => {
      const harm = harms[head], colour = diverging(.5 + (harm ?? 0) / most / 2);
      button.textContent = heads > 8 ? '' : text(harm);
      button.title = `Without ${model.head_name(head)}: ${text(harm)}`;
      button.style.background = rgb(colour);
      button.style.color = ink_on(colour);
      button.setAttribute('aria-pressed', String(head === chosen));
      button.setAttribute('aria-label', button.title);
    });
    show_scale(scale, diverging, [[0, text(-most)], [.5, '0'], [1, text(most)]]);
    words.textContent = chosen === null ? 'No head is taken away.' :
        `${buttons[chosen].title} nats. Choose it again to put it back.`;
  };
  element.append(make('div', {class: 'controls'}, mode), make('div', {class: 'scroll'}, table),
                 words, scale);
  on_scheme(draw);
  model.watch(draw);
}

// The diagram: a button for each step, and lines from those that it reads.
class Diagram {
  constructor(model, element) {
    this.model = model;
    this.svg = make_svg('svg', {'aria-hidden': 'true'});
    this.box = make('nav', {class: 'diagram', 'aria-label': 'The steps'}, this.svg);
    this.buttons = model.steps.map((step, i) => this.button(step, i));
    let part = null;
    this.buttons.forEach((button, i) => {
      const own = this.part_of(i);
      if (own !== part) this.box.append(make('h3', {}, own));
      part = own;
      this.box.append(button);
    });
    element.append(this.box);
    on_scheme(() => this.paint());
    new ResizeObserver(() => this.draw_lines()).observe(this.box);
    this.paint();
    model.watch((chosen, first, change) => { if (first || 'step' in change) this.mark(first); });
  }
  // "h.1.attn.c_proj" and "model.layers.1.mlp" are in block 1, and so is what runs between them.
  part_of(i) {
    const blocks = this.model.steps.map(({module}) => module.match(/\.(\d+)(\.|$)/)?.[1]);
    const before = blocks.findLast((block, k) => block && k <= i);
    return !before ? 'Input' : blocks.slice(i).some(Boolean) ? `Block ${before}` : 'Output';
  }
  button(step, i) {
    const picture = step.pictures.at(-1), canvas = make('canvas', {'aria-hidden': 'true'});
    const size = !picture ? '' : picture.heads ?
        `${picture.heads} \u00d7 ${picture.rows} \u00d7 ${picture.rows}` :
        `${picture.rows} \u00d7 ${picture.columns}`;
    return make('button', {type: 'button', tabindex: -1,
                           onclick: () => this.model.choose({step: i})},
                canvas, make('span', {}, step.about.title, make('small', {}, size)));
  }
  paint() {
    this.model.steps.forEach((step, i) => {
      const picture = step.pictures.at(-1), canvas = this.buttons[i].firstChild;
      if (picture) paint_small(canvas, picture);
    });
  }
  mark(first) {
    const {step} = this.model.chosen;
    this.buttons.forEach((button, i) => {
      button.tabIndex = i === step ? 0 : -1;
      i === step ? button.setAttribute('aria-current', 'step') :
                   button.removeAttribute('aria-current');
    });
    this.draw_lines();
    if (first) return;
    const at = this.buttons[step], top = at.offsetTop, {box} = this;
    if (top < box.scrollTop + 40 || top + at.offsetHeight > box.scrollTop + box.clientHeight - 40)
      box.scrollTop = top - box.clientHeight / 2;
  }
  draw_lines() {
    const middle = i => this.buttons[i].offsetTop + this.buttons[i].offsetHeight / 2;
    const left = this.buttons[0].offsetLeft, {step: chosen} = this.model.chosen;
    this.svg.setAttribute('width', left + 2);
    this.svg.setAttribute('height', this.box.scrollHeight);
    const paths = this.model.steps.flatMap((step, i) => [...new Set(step.from)].map(from => {
      const [a, b] = [middle(from), middle(i)], near = i - from === 1;
      const x = left - (near ? 10 : Math.min(left - 6, 14 + 7 * (i - from)));
      const d = `M${left} ${a}C${x} ${a} ${x} ${a} ${x} ${a + 12}V${b - 12}` +
          `C${x} ${b} ${x} ${b} ${left} ${b}`;
      const path = make_svg('path', {d});
      if (i === chosen || from === chosen) path.classList.add('at');
      return path;
    }));
    paths.sort((a, b) => a.classList.contains('at') - b.classList.contains('at'));
    this.svg.replaceChildren(...paths);
  }
  focus() { this.buttons[this.model.chosen.step].focus({preventScroll: true}); }
}
function paint_small(canvas, picture) {
  const {scale, map} = colours_of(picture);
  paint(canvas, picture.rows, picture.shown, (i, j) => {
    const v = number(picture.value(i, j, 0));
    return v === null ? masked(3 * i, 3 * j) : map(scale(v));
  });
}
function colours_of(picture) {
  const {from, to, root, diverging: both} = picture.scale();
  const linear = v => clamp((v - from) / (to - from), 0, 1);
  return {scale: root ? v => Math.sqrt(linear(v)) : linear, map: both ? diverging : graded};
}

// The chosen step: what it is for, its formula, and its tensors.
class Panel {
  constructor(model, element) {
    this.model = model;
    this.head = 0;
    this.text = make('div', {'aria-live': 'polite'});
    this.slots = [];  // maps that every step uses again
    this.buttons = make('div', {class: 'controls between'});
    this.box = make('div', {class: 'panel'}, this.buttons, this.text);
    element.append(this.box);
    model.watch((chosen, first, change) => {
      if (first || 'step' in change) this.show();
      else if ('token' in change) this.point();
    });
  }
  show() {
    const {model} = this, step = model.steps[model.chosen.step], {about} = step;
    const from = [...new Set(step.from)].map(i => make(
        'button', {type: 'button', onclick: () => model.choose({step: i})},
        model.steps[i].about.title));
    const by = (text, i) => make('button', {type: 'button', disabled: !model.steps[i],
                                            onclick: () => model.choose({step: i})}, text);
    const {step: at} = model.chosen;
    this.buttons.replaceChildren(by('\u2191 Previous', at - 1), by('\u2193 Next', at + 1));
    this.text.replaceChildren(
        make('h3', {}, about.title), make('p', {}, about.text),
        about.formula ? make('pre', {}, about.formula) : '',
        about.code ? make('p', {class: 'small quiet'}, 'The code: ',
                          make('code', {}, about.code[1]), ` in ${about.code[0]}`) : '',
        step.module ? make('p', {class: 'small quiet'}, 'Module ',
                           make('code', {}, step.module), ', op ', make('code', {}, step.op)) : '',
        from.length ? make('p', {class: 'small reads'}, 'Reads: ', ...from) : '');
    this.stopped = make('p');
    this.text.append(this.stopped);
    step.pictures.forEach((picture, i) => this.show_picture(this.slot(i), step, picture));
    this.slots.forEach((slot, i) => { slot.box.hidden = i >= step.pictures.length; });
    this.point();
  }
  slot(i) {
    if (this.slots[i]) return this.slots[i];
    const title = make('h4'), controls = make('div'), body = make('div');
    const slot = {title, controls, box: make('div', {class: 'picture'}, title, controls, body)};
    slot.map = new HeatMap(body, {id: `picture ${i}`, label: 'A picture of numbers'});
    slot.mark = make('div', {class: 'mark'});  // the row of the chosen token
    slot.map.plane.append(slot.mark);
    slot.map.plane.onclick = () => this.model.choose({token: slot.map.row});
    this.box.append(slot.box);
    return this.slots[i] = slot;
  }
  show_picture(slot, step, picture) {
    const {model} = this, {about} = step, name = about.names?.[picture.name] || picture.name;
    const size = picture.heads ? `${picture.heads} heads, ${picture.rows} \u00d7 ${picture.rows}` :
        `${picture.rows} ${picture.rows === 1 ? 'token' : 'tokens'} \u00d7 ${picture.columns}` +
        (picture.shown < picture.columns ? `; the first ${picture.shown} are shown` : '');
    slot.title.textContent = `${name} (${size})`;
    const first_of_heads = picture.heads && picture === step.pictures.find(p => p.heads);
    slot.controls.replaceChildren(first_of_heads ? this.head_choice(picture.heads) : '');
    slot.box.classList.toggle('square', Boolean(picture.heads));
    slot.map.box.setAttribute('aria-label', `${name}. The arrow keys move from value to value.`);
    slot.map.update({
      rows: model.shown, columns: [...Array(picture.shown).keys()],
      value: (i, j) => picture.value(i, j, this.head), format: v => show_number(v, 3),
      title: picture.heads ? 'columns: the token that is looked at' :
          about.vocabulary ? 'columns: tokens of the vocabulary' : 'columns: features',
      scale: picture.scale(), height: clamp(Math.floor(600 / model.n), 9, 22),
      say: (i, j) => this.say(about, picture, i, j)});
  }
  say(about, picture, i, j) {
    const {model} = this, v = picture.value(i, j, this.head), text = show_number(v, 3);
    if (picture.heads)
      return `head ${this.head}: ${model.named(i)} looks at ${model.named(j)}: ` +
          (v === null ? 'masked' : text);
    return about.vocabulary ?
        `after ${model.named(i)}: token ${show_token(model.words[j] ?? j)}: ${text}` :
        `${model.named(i)}, feature ${j}: ${text}`;
  }
  head_choice(heads) {
    const options = Array.from({length: heads}, (_, h) => [h, String(h)]);
    return make('div', {class: 'controls'}, button_group('Head', options, this.head, head => {
      this.head = head;
      for (const slot of this.slots) if (!slot.box.hidden) slot.map.draw();
    }));
  }
  // Marks the chosen token, and says what the model would say if it stopped here.
  point() {
    const {model} = this, {token, step} = model.chosen, {stopped} = model.steps[step];
    this.stopped.hidden = !stopped;
    if (stopped) {
      const best = model.listed(stopped, token).map(
          ({id, p}) => `${show_token(model.words[id] ?? id)} ${p.toFixed(2)}`);
      this.stopped.textContent = `If the model stopped here, it would say after ` +
          `${model.named(token)}: ${best.join(', ')}.`;
    }
    for (const {box, map, mark} of this.slots) {
      if (box.hidden) continue;
      map.look(token, map.column ?? 0, false);
      Object.assign(mark.style, {top: 100 * token / model.n + '%', height: 100 / model.n + '%'});
    }
  }
}

function show_look_attention(model, section) {
  const layers = model.steps.flatMap(step => step.pictures.filter(p => p.name === 'weights'));
  const heads = layers[0]?.heads;
  if (!heads || layers.some(p => p.heads !== heads)) return section.remove();
  const view = attention_view(document.getElementById('attention'), {
    tokens: model.tokens, layers: layers.length, heads, causal: layers.every(p => p.causal),
    weight: (head, i, j) => layers[Math.floor(head / heads)].value(i, j, head % heads) || 0,
    chosen: {query: model.chosen.token}});
  model.watch(({token}, first, change) => {
    if (!first && 'token' in change && !view.pinned) view.look(token, null);
  });
}

// The arrow keys: left and right choose a token, up and down a step where the steps are.
function listen_to_keys(model, diagram) {
  const own = '.heat-box, .attention, input, select';
  document.addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.(own)) return;
    const across = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    const down = {ArrowUp: -1, ArrowDown: 1}[event.key];
    const among_steps = event.target.closest?.('.walk');
    if (across) model.move(across);
    else if (down && among_steps) {
      model.choose({step: clamp(model.chosen.step + down, 0, model.steps.length - 1)});
      diagram.focus();
    } else return;
    event.preventDefault();
  });
}

function look(data) {
  const element = id => document.getElementById(id), model = new Model(data);
  document.title = element('title').textContent = data.title;
  element('model').textContent =
      `${data.model}. Trained on ${data.trained_on.replace(/[.]$/, '')}.`;
  if (data.given > model.n) {
    element('part').hidden = false;
    element('part').textContent =
        `The text has ${data.given} tokens. The page shows the last ${model.n}; the model sees ` +
        'only these.';
  }
  show_look_text(model, element('text'));
  show_next(model, element('next'), element('temperature'));
  show_heads(model, element('heads'));
  const diagram = new Diagram(model, element('steps'));
  new Panel(model, element('steps'));
  show_look_attention(model, element('attention-section'));
  listen_to_keys(model, diagram);
}
