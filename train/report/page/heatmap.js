// A map of values, rows by steps: new HeatMap(element, {id, label}), then map.update(options).
//   rows     names                             columns  steps
//   value    (row, column) => number or null   format   value => text
//   title    what the colours show, with its unit
//   scale    {from, to, log, root, diverging, ticks: [[value, text], ...]}; root: colours by the
//            square root; diverging: the middle is neutral
//   height   of a row in pixels; by default it fits the names
//   say      (row, column) => the text for a value; by default "NAME, step STEP: VALUE"
// Point at a cell, or move with the arrow keys, to read its value.
class HeatMap {
  constructor(element, {id, label}) {
    this.id = id;
    this.row = this.column = null;
    this.title = make('p', {class: 'heat-title'});
    this.names = make('div', {class: 'heat-names', 'aria-hidden': 'true'});
    this.canvas = make('canvas', {'aria-hidden': 'true'});
    this.cell = make('div', {class: 'heat-cell', hidden: true});
    this.plane = make('div', {class: 'heat-plane'}, this.canvas, this.cell);
    this.steps = make('div', {class: 'heat-steps heat-foot', 'aria-hidden': 'true'});
    this.box = make('div', {class: 'heat-box', tabindex: 0, role: 'group', 'aria-label':
                            label + '. The arrow keys move from value to value.'},
                    this.names, this.plane, make('div', {class: 'heat-foot'}), this.steps);
    this.scale = make('div', {class: 'scale'});
    this.value = make('output', {class: 'heat-value', 'aria-live': 'polite'});
    element.append(this.title, this.box, this.value, this.scale);
    this.plane.onpointermove = this.plane.onpointerdown = event => this.point(event);
    this.box.onkeydown = event => this.key(event);
    on_scheme(() => this.draw());
    on_resize(this.box, () => { if (this.options) this.fit_names(); });
    on_resize(this.plane, () => { if (this.options) this.draw_steps(); });
  }
  update(options) {
    this.options = options;
    const {rows, columns, title, height = rows.length > 14 ? 15 : 20} = options;
    this.title.textContent = title;
    this.box.hidden = rows.length === 0;
    this.box.style.setProperty('--row', height + 'px');
    this.plane.style.height = rows.length * height + 'px';
    this.plane.style.width = `min(100%, ${columns.length * 4}rem)`;
    this.plane.style.minWidth = '7rem';
    this.names.replaceChildren(...rows.map(name => make('div', {title: name}, name)));
    if (this.row >= rows.length || this.column >= columns.length) this.row = this.column = null;
    this.draw();
  }
  // Names that are too long lose their middle: their letters have one width.
  fit_names() {
    const {rows} = this.options, style = getComputedStyle(this.names);
    const letter = parseFloat(style.fontSize) * .61;
    const most = Math.floor((parseFloat(style.maxWidth) - 10) / letter) ||
        Math.floor(Math.min(256, .4 * innerWidth) / letter) - 1;
    rows.forEach((name, i) => { this.names.children[i].textContent = middle_cut(name, most); });
  }
  draw() {
    if (!this.options) return;
    this.fit_names();
    if (this.box.hidden) { this.value.textContent = 'No name has these words.'; return; }
    const {rows, columns, value, scale} = this.options;
    const colour = scale.diverging ? diverging : graded;
    paint(this.canvas, rows.length, columns.length, (i, j) => {
      const v = number(value(i, j));
      return v === null ? masked(3, 3) : colour(this.place(v));
    });
    show_scale(this.scale, colour, scale.ticks.map(([v, text]) => [this.place(v), text]));
    this.draw_steps();
    this.look(this.row, this.column, false);
  }
  // Where a value stands on the scale, 0..1. On a logarithmic one, 0 is the lowest.
  place(v) {
    const {from, to, log, root} = this.options.scale;
    if (root) return Math.sqrt(clamp((v - from) / (to - from), 0, 1));
    if (!log) return clamp((v - from) / (to - from), 0, 1);
    return v <= 0 ? 0 : clamp(Math.log(v / from) / Math.log(to / from), 0, 1);
  }
  draw_steps() {
    const {columns} = this.options, n = columns.length;
    const texts = columns.map(step => show_short(step)), width = this.plane.clientWidth;
    const half = 3.5 * Math.max(...texts.map(text => text.length)), ticks = [];
    let free = Infinity;  // where the label after begins
    for (let j = n - 1; j >= 0; --j) {  // the last one has a label, inside
      const at = Math.min((j + .5) / n * width, width - half);
      if (at + half + 8 > free) continue;
      ticks.push(make('span', {style: `left: ${at}px`}, texts[j]));
      free = at - half;
    }
    this.steps.replaceChildren(...ticks);
  }
  look(row, column, scroll = true) {
    const {rows, columns, value, format, say} = this.options;
    this.names.querySelector('.at')?.classList.remove('at');
    this.cell.hidden = row === null;
    if (row === null) {
      this.value.textContent = 'Point at the map to read a value.';
      return;
    }
    [this.row, this.column] = [row, column];
    this.names.children[row].classList.add('at');
    Object.assign(this.cell.style, {
      top: 100 * row / rows.length + '%', height: 100 / rows.length + '%',
      left: 100 * column / columns.length + '%', width: 100 / columns.length + '%'});
    if (scroll) this.cell.scrollIntoView({block: 'nearest'});
    this.value.textContent = say ? say(row, column) :
        `${rows[row]}, step ${show_count(columns[column])}: ${format(value(row, column))}`;
  }
  point(event) {
    const {rows, columns} = this.options, box = this.plane.getBoundingClientRect();
    const index = (x, n) => clamp(Math.floor(x * n), 0, n - 1);
    if (rows.length === 0) return;
    this.look(index((event.clientY - box.top) / box.height, rows.length),
              index((event.clientX - box.left) / box.width, columns.length), false);
  }
  key(event) {
    const {rows, columns} = this.options;
    const step = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0],
                  ArrowDown: [1, 0]}[event.key];
    if (!step || rows.length === 0) return;
    event.preventDefault();
    if (this.row === null) { this.look(0, columns.length - 1); return; }
    this.look(clamp(this.row + step[0], 0, rows.length - 1),
              clamp(this.column + step[1], 0, columns.length - 1));
  }
}
