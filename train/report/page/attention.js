// Attention weights: one large map, small maps of all heads, and the text.
//   attention_view(element, {tokens, layers, heads, causal, weight, digits, chosen,
//                 changed})
//   weight   (head, i, j) => 0..1; heads are numbered through all layers; i looks at j
//   digits   of a weight, after the point
//   chosen   {head, query, key, pinned}: where to begin; changed(chosen) tells what is chosen now
// Returns the view: update(weight) shows other weights and keeps the choice, and key(event) handles
// a key. The element takes the focus, so that its keys work.
const attention_view = (element, options) => new AttentionView(element, options);

class AttentionView {
  constructor(element, {tokens, layers, heads, causal, weight, digits = 4, chosen = {},
                        changed = () => {}}) {
    Object.assign(this, {root: element, tokens, layers, heads, causal, weight, digits, changed});
    this.n = tokens.length;
    this.head = clamp(chosen.head || 0, 0, layers * heads - 1);
    this.query = clamp(chosen.query ?? this.n - 1, 0, this.n - 1);
    this.column = chosen.key ?? null;  // the token looked at; null: the strongest
    if (this.column !== null) this.column = clamp(this.column, 0, this.n - 1);
    this.pinned = Boolean(chosen.pinned);
    this.longer = tokens.some(token => token.length > 2);
    this.build();
    this.listen();
    this.draw();
  }
  update(weight) {
    this.weight = weight;
    this.draw();
  }

  build() {
    const box = (name, ...children) => make('div', {class: name}, ...children);
    this.root.classList.add('attention');
    this.root.classList.toggle('words', this.longer);
    fill(this.root, {tabindex: 0, role: 'group'}, []);
    this.root.style.setProperty('--heads', this.heads);
    const shown = in_text(this.tokens);
    this.spans = this.tokens.map((token, i) => make('span', {
      onmouseenter: () => { if (!this.pinned) this.look(i, null); },
      onclick: () => { this.pinned = false; this.look(i, null); },
    }, shown(token)));
    this.large = make('canvas', {role: 'img'});
    [this.row_mark, this.column_mark] = [box('row'), box('column')];
    [this.rows, this.columns] = [box('axis rows'), box('axis columns')];
    this.map = box('map', this.large, this.row_mark, this.column_mark,
                   box('axis-title columns-title', 'looked at \u2192'), this.columns,
                   box('axis-title rows-title', '\u2190 looks'), this.rows);
    this.scale = box('scale');
    this.value = make('div', {class: 'value', 'aria-live': 'polite'});
    this.small = [];
    this.root.replaceChildren(box('text', ...this.spans), box(
        'maps', make('div', {}, this.map, this.scale, this.value), box('heads', this.table())));
    this.row_mark.style.height = this.column_mark.style.width = 100 / this.n + '%';
  }
  table() {
    const table = make('table');
    table.createTHead().insertRow().append(make('td', {}, 'head'), ...Array.from(
        {length: this.heads}, (_, h) => make('th', {scope: 'col'}, String(h))));
    for (let layer = 0; layer < this.layers; ++layer) {
      const row = table.insertRow();
      row.append(make('th', {scope: 'row'}, 'layer ' + layer));
      for (let h = 0; h < this.heads; ++h) {
        const which = layer * this.heads + h;
        this.small.push(make('canvas', {title: `layer ${layer}, head ${h}`,
                                        onclick: () => this.choose(which)}));
        if (this.n > 48) this.small[which].style.imageRendering = 'auto';  // it becomes smaller
        row.append(make('td', {}, this.small[which]));
      }
    }
    return table;
  }
  listen() {
    const look_at = event => {
      const at = this.large.getBoundingClientRect();
      const index = x => clamp(Math.floor(x * this.n), 0, this.n - 1);
      this.look(index((event.clientY - at.top) / at.height),
                index((event.clientX - at.left) / at.width));
    };
    this.large.onmousemove = event => { if (!this.pinned) look_at(event); };
    this.large.onclick = event => { this.pinned = !this.pinned; look_at(event); };
    this.root.onkeydown = event => this.key(event);
    on_resize(this.map, () => this.point());
    on_scheme(() => this.draw());
  }

  seen(i, j) { return !this.causal || j <= i; }
  // By the square root: small weights can be seen, too.
  colour(w) { return sequential(Math.sqrt(w || 0)); }
  paint(canvas, head) {
    paint(canvas, this.n, this.n, (i, j) => this.seen(i, j) ?
          this.colours[Math.round(255 * Math.sqrt(clamp(this.weight(head, i, j) || 0, 0, 1)))] :
          masked(i, j));
  }
  draw() {
    this.colours = Array.from({length: 256}, (_, k) => sequential(k / 255));
    show_scale(this.scale, sequential, [0, .1, .25, .5, 1].map(
        w => [Math.sqrt(w), w === 0 ? '0\nweight' : String(w)]));
    this.small.forEach((canvas, head) => this.paint(canvas, head));
    this.choose(this.head);
  }
  choose(which) {
    this.head = (which + this.layers * this.heads) % (this.layers * this.heads);
    this.small.forEach((canvas, i) => canvas.classList.toggle('chosen', i === this.head));
    this.paint(this.large, this.head);
    this.point();
  }
  look(i, j) {
    [this.query, this.column] = [i, j];
    this.point();
  }

  // Shows what the chosen token looks at: in the text, on the map, in words.
  point() {
    const {head, query, column, pinned} = this;
    const weight = j => this.weight(head, query, j) || 0;
    this.spans.forEach((span, j) => {
      const seen = this.seen(query, j), colour = this.colour(seen ? weight(j) : 0);
      span.className = j === query ? 'query' : seen ? '' : 'masked';
      span.style.background = rgb(colour);
      span.style.color = seen && weight(j) > .25 ? ink_on(colour) : '';
    });
    const row = [...this.tokens.keys()].filter(j => this.seen(query, j))
        .sort((a, b) => weight(b) - weight(a));
    const named = i => `${show_token(this.tokens[i])} (${i})`;
    const one = j => `${named(j)} ${weight(j).toFixed(this.digits)}`;
    const name = `layer ${Math.floor(head / this.heads)}, head ${head % this.heads}`;
    this.value.textContent = `${name}: ${named(query)} looks at ` +
        (column === null ? row.slice(0, 4).map(one).join(', ') :
         this.seen(query, column) ? one(column) : named(column) + ', masked') +
        (pinned ? ' (pinned)' : '');
    this.large.setAttribute('aria-label', `Attention weights of ${name}`);
    const at = column === null ? row[0] : column;
    this.map.classList.toggle('pinned', pinned);
    this.row_mark.style.top = 100 * query / this.n + '%';
    this.column_mark.style.left = 100 * at / this.n + '%';
    this.label(this.rows, query, 'top');
    this.label(this.columns, at, 'left');
    this.changed({head, query, key: column, pinned});
  }
  // The tokens beside a side of the map: all, where they fit; else those around the chosen one.
  label(axis, chosen, side) {
    const length = side === 'top' ? axis.clientHeight : axis.clientWidth;
    const {n} = this, smallest = this.longer || side === 'top' ? 10 : 7;
    const step = Math.max(length / n, smallest), middle = (chosen + .5) * length / n;
    axis.replaceChildren(...this.tokens.flatMap((token, i) => {
      const at = middle + (i - chosen) * step;
      if (at < 0 || at > length || (step > length / n && Math.abs(i - chosen) > 8)) return [];
      const span = make('span', {class: i === chosen ? 'at' : null}, visible(token));
      span.style[side] = at + 'px';
      return [span];
    }));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Escape') { this.pinned = false; this.point(); }
    const step = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0],
                  ArrowDown: [1, 0]}[event.key];
    if (!step) return;
    event.preventDefault();
    this.query = (this.query + step[1] + this.n) % this.n;
    if (step[1]) this.column = null;
    this.choose(this.head + step[0]);
  }
}

// The page of `sample --attention`: the weights are 16-bit numbers, the low byte first, in base64.
function attention(data) {
  const {title, tokens, layers, heads, causal} = data, n = tokens.length;
  const bytes = Uint8Array.from(atob(data.weights), c => c.charCodeAt(0));
  const words = new DataView(bytes.buffer), size = causal ? n * (n + 1) / 2 : n * n;
  const weight = (head, i, j) =>
      words.getUint16(2 * (head * size + (causal ? i * (i + 1) / 2 : i * n) + j), true) / 65535;
  document.title = document.getElementById('title').textContent = title;
  const root = document.getElementById('attention');
  const view = attention_view(root, {tokens, layers, heads, causal, weight});
  document.onkeydown = event => { if (!root.contains(event.target)) view.key(event); };
}
