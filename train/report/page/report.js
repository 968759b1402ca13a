// The report of one or several runs: report(data) fills the sections of report.html.

function report(data) {
  data ||= {};
  const page = {data, runs: named_runs(data.runs || [])};
  const sections = {
    loss: show_loss, speed: show_speed,
    parameters: page => show_measured(page, 'parameters', kParameters),
    activations: page => show_measured(page, 'activations', kActivations),
    samples: show_samples, attention: show_attention, text: show_text, model: show_model,
    top: show_top,  // the last: it has links to the sections that there are
  };
  for (const [id, show] of Object.entries(sections))
    if (!show(page)) document.getElementById(id).remove();
  document.title = page_title(page.runs);
  show_contents();
  keep_open();
  keep_fresh(data);
  tell_silence(data);
}
function page_title(runs) {
  const names = runs.map(run => run.name).join(', ') || 'Report';
  const [{state, step, max_iters}] = runs.length ? runs : [{}];
  return runs.length === 1 && state === 'running' && step > 0 && max_iters > 0 ?
      `${Math.floor(100 * step / max_iters)} % ${names}` : names;
}
const body_of = id => document.querySelector(`#${id} .body`);

// Every run with a name of its own, and a colour.
function named_runs(runs) {
  const seen = {};
  return runs.filter(Boolean).map((run, i) => {
    const whole = String(run.name ?? 'run ' + (i + 1)), name = middle_cut(whole, 40);
    const count = seen['=' + name] || 0;
    seen['=' + name] = count + 1;
    return {...run, whole, name: count ? `${name} (${count + 1})` : name, colour: i};
  });
}

// The last value of a column, and where it stands.
function last_of(table, column) {
  const values = numbers(table?.[column]);
  const i = values.findLastIndex(v => v !== null);
  return i < 0 ? null : {value: values[i], i, step: number(table.step?.[i]),
                         best: number(table.best_possible?.[i])};
}
const last_loss = run => last_of(run.validation, 'val_loss') || last_of(run.metrics, 'train_loss');
const loss_kind = run => last_of(run.validation, 'val_loss') ? 'validation' : 'training';
// Of the validation loss, which has them where the tokens have a text.
const bits_of = run => last_of(run.validation, 'val_bpb')?.value;
const bits = run => {
  const right = last_of(run.validation, 'val_answers');  // of a task
  return (bits_of(run) ? `; ${show_number(bits_of(run))} bits per byte` : '') +
      (right ? `; ${answers_text(right.value)}` : '');
};
// As in train/report/numbers.cpp: 100 % are all.
const answers_text = share =>
    `${(share < 1 ? Math.min(100 * share, 99.9) : 100).toFixed(1)} % of answers right`;
// What the losses of a run's evaluations, or its last loss, are measured on; '' if not known.
const sampled_text = run => {
  const batches = number(run.config?.eval_iters);
  return batches === null ? '' : batches === 0 ? 'whole set' :
      `${show_count(batches)} ${batches === 1 ? 'batch' : 'batches'}`;
};
function measured_text(run) {
  const last = last_of(run.validation, 'val_loss'), joined = number(run.joined?.metrics);
  if (!last) return joined > 1 ? `mean of up to ${show_count(joined)} lines` : '';
  return number(run.validation.sampled_loss?.[last.i]) !== null ? 'whole set' : sampled_text(run);
}
// The evaluations on the same batches, which make one curve: of one on the whole set, the loss on
// these batches. The best possible loss of them is that of the evaluation before.
function sampled_of(table) {
  const sampled = numbers(table?.sampled_loss);
  let best = null;
  return {...table, val_loss: numbers(table?.val_loss).map((v, i) => sampled[i] ?? v),
          ...table?.best_possible && {best_possible: numbers(table.best_possible).map((b, i) => {
            if (best === null || (sampled[i] ?? null) === null) best = b;
            return best;
          })}};
}
const above_best = loss => loss && loss.best > 0 ? loss.value / loss.best - 1 : null;
const signed = (x, show) => (x < 0 ? '\u2212' : '+') + show(Math.abs(x));
// Many times the best possible is no percentage that says anything.
function above_text(loss) {
  const above = above_best(loss);
  return above === null ? '\u2013' : above < 10 ? signed(above, show_percent) :
      signed(loss.value - loss.best, x => show_number(x) + ' nats');
}
// Of the evaluations on the batches of the last one.
function lowest_loss(run) {
  const table = sampled_of(run.validation), sets = table.val_set || [];
  const losses = table.val_loss.map((v, i, all) => sets[i] === sets[all.length - 1] ? v : null);
  const i = losses.reduce((a, v, i) => v !== null && (a < 0 || v < losses[a]) ? i : a, -1);
  return i < 0 ? null : {value: losses[i], step: number(table.step?.[i]),
                         best: number(table.best_possible?.[i]), on: sampled_text(run)};
}
const last_value = (run, column) => last_of(run.metrics, column)?.value ?? null;
function median_rate(run) {
  const rates = numbers(run.metrics?.tokens_per_s).filter(v => v !== null).sort((a, b) => a - b);
  return rates.length ? rates[rates.length >> 1] : null;
}
const show_rate = run => {
  const rate = median_rate(run);
  return rate === null ? '\u2013' : show_short(Number(rate.toPrecision(3)));
};
const show_memory = mb => mb === null ? '\u2013' :
    mb >= 10000 ? show_number(mb / 1000, 3) + ' GB' : show_number(mb, 3) + ' MB';

// The overview.
function show_top({runs, data}) {
  const body = body_of('top');
  if (runs.length === 0) {
    body.append(make('h1', {}, 'Report'), make('p', {}, 'There are no runs to show.'));
    return true;
  }
  if (runs.length === 1) body.append(...overview(runs[0]));
  else body.append(make('h1', {}, `${runs.length} runs side by side`), overview_table(runs));
  body.append(freshness(data));
  if (runs.length > 1) {
    const rows = config_rows(runs).filter(row => row.differs && row.name !== 'out_dir');
    body.append(make('h2', {}, 'What differs'), rows.length ? config_table(runs, rows) :
                make('p', {}, 'No setting that is known differs.'));
  }
  body.append(make('h2', {}, 'What stands out'), ...findings(runs));
  return true;
}
const faults_of = run => (run.findings || []).filter(f => f?.level === 'fault').length;
// Green says that all is well.
function state_of(run) {
  const text = run.state || 'state unknown', faults = text === 'failed' ? 0 : faults_of(run);
  return make('span', {class: `state ${run.state || ''}` + (faults ? ' faulty' : '')},
              faults ? `${text}, ${faults} ${faults === 1 ? 'fault' : 'faults'}` : text);
}

function overview(run) {
  const step = number(run.step), most = number(run.max_iters);
  const progress = make('progress', {max: most || 1, 'aria-label': 'Steps done'});
  progress.value = most ? clamp((step || 0) / most, 0, 1) * most : 0;
  return [
    make('div', {class: 'head'}, make('h1', {}, run.whole), state_of(run),
         make('span', {class: 'quiet'}, `step ${show_count(step)} of ${show_count(most)}`)),
    run.model ? make('p', {class: 'quiet small'}, run.model) : null,
    progress, tiles(run), changed_settings(run), command(run),
  ].filter(Boolean);
}
// {n_layer: 6} in run.defaults says that the run has another value than the default, 6.
function changed_settings(run) {
  const defaults = Object.entries(run.defaults || {});
  if (defaults.length === 0) return null;
  const show = value => value === null || value === '' || value?.length === 0 ? 'none' :
      String(value);
  return make('p', {class: 'small'}, 'Not the default: ' + defaults.map(([name, value]) =>
      `${name} ${show(run.config?.[name])} instead of ${show(value)}`).join(', ') + '.');
}
function tiles(run) {
  const tile = (name, value, note) => [
    make('dt', {}, name), make('dd', {}, value, note ? make('small', {}, note) : null)];
  const loss = last_loss(run), memory = last_value(run, 'memory_mb'), left = run.seconds_left;
  const above = above_best(loss), estimated = number(run.memory_mb);
  const all = [
    loss ? tile(`${loss_kind(run)} loss`, show_number(loss.value),
                `nats per token, step ${show_count(loss.step)}` +
                    (measured_text(run) && `, ${measured_text(run)}`) + bits(run)) :
        tile('loss', '\u2013', 'nothing measured yet'),
    above !== null ? tile('above best possible', above_text(loss),
                          `best possible ${show_number(loss.best)}`) : null,
    tile('time taken', show_time(run.elapsed_s), number(left) !== null && run.state === 'running' ?
         make('span', {class: 'left'}, `about ${show_time(left)} left`) :
         run.started && `started ${run.started}`),
    tile('speed', show_rate(run), 'tokens per second, median' + (
        number(run.joined?.metrics) > 1 ? ` of means of ${show_count(run.joined.metrics)} lines` :
        '')),
    memory !== null || estimated !== null ? tile(
        'memory', show_memory(memory ?? estimated),
        memory === null ? 'estimated' : estimated === null ? 'in use' :
            `in use; ${show_memory(estimated)} estimated for tensors`) : null,
  ];
  return make('dl', {class: 'tiles'},
              ...all.filter(Boolean).map(parts => make('div', {}, ...parts)));
}
function command(run) {
  if (!run.command) return null;
  const code = make('code', {}, ...with_options(run.command));
  const button = make('button', {type: 'button', onclick: () => copy(code, button)}, 'Copy');
  const note = String(run.command_note || 'command');
  return make('div', {}, make('span', {class: 'quiet small'},
                              note[0].toUpperCase() + note.slice(1) + ':'),
              make('div', {class: 'command'}, code, button));
}
async function copy(element, button) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    button.textContent = 'Copied';
  } catch {  // an old browser, or a page that may not: the reader copies what is selected
    getSelection().selectAllChildren(element);
    button.textContent = 'Selected';
  }
  setTimeout(() => { button.textContent = 'Copy'; }, 2000);
}
function overview_table(runs) {
  return sortable_table('runs', [
    {title: 'Run', value: run => run.name,
     show: run => make('span', {title: run.whole}, swatch(run.colour, null, run.colour),
                       run.name)},
    {title: 'State', value: run => run.state, show: state_of},
    {title: 'Step', number: true, value: run => number(run.step),
     show: run => `${show_count(run.step)} of ${show_count(run.max_iters)}`},
    {title: 'Loss', number: true, value: run => last_loss(run)?.value,
     show: run => with_note(show_number(last_loss(run)?.value),
                            [loss_kind(run), measured_text(run)].filter(Boolean).join(', '))},
    {title: 'Lowest validation', number: true, value: run => lowest_loss(run)?.value,
     show: run => with_note(show_number(lowest_loss(run)?.value), lowest_loss(run)?.on)},
    ...runs.some(bits_of) ? [{title: 'Bits per byte', number: true, value: bits_of,
                              show: run => show_number(bits_of(run))}] : [],
    {title: 'Above best possible', number: true, value: run => above_best(last_loss(run)),
     show: run => above_text(last_loss(run))},
    {title: 'Time', number: true, value: run => number(run.elapsed_s),
     show: run => show_time(run.elapsed_s)},
    {title: 'Tokens/s', number: true, value: median_rate,
     show: show_rate},
    {title: 'Memory', number: true,
     value: run => last_value(run, 'memory_mb') ?? number(run.memory_mb),
     show: run => with_note(show_memory(last_value(run, 'memory_mb') ?? number(run.memory_mb)),
                            last_value(run, 'memory_mb') === null && 'estimated')},
  ], runs);
}
// A number, and what it is of.
const with_note = (text, note) => note && text !== '\u2013' ?
    make('span', {}, text, make('small', {}, ` ${note}`)) : text;
function findings(runs) {
  const levels = ['fault', 'hint', 'good'];
  const all = [];  // the same finding of several runs is one
  for (const run of runs) for (const f of (run.findings || []).filter(Boolean)) {
    const same = all.find(g => ['level', 'text', 'section'].every(k => g[k] === f[k]));
    if (same) same.runs.push(run); else all.push({...f, runs: [run]});
  }
  all.sort((a, b) => levels.indexOf(a.level) - levels.indexOf(b.level));
  const line = f => {
    const there = f.section && document.getElementById(f.section);
    const names = f.runs.map(run => run.name).join(', ');
    const text = with_options((runs.length > 1 ? names + ': ' : '') + (f.text ?? ''));
    const go = () => {  // the section shows the measure and the row that the finding is about
      if (f.measure) choices.set(f.section + ' measure', f.measure);
      if (f.name) choices.set(f.section + ' row', f.name);
      choices.set('run', runs.indexOf(f.runs[0]));
    };
    const level = levels.includes(f.level) ? f.level : 'hint';
    return make('li', {class: level},
                make('b', {}, level),
                ...there ? [make('a', {href: '#' + there.id, onclick: go}, ...text)] : text);
  };
  const list = all.length ? [make('ul', {class: 'findings'}, ...all.map(line))] : [];
  const fault = all.some(f => f.level === 'fault');
  const checked = make('details', {id: 'checked'}, make('summary', {}, 'What is looked for'), make(
      'p', {class: 'small'}, 'Losses that rise or stop falling; skipped steps; slow stretches; ' +
      'weights that do not turn, have grown, are thrown about, or are far larger than similar ' +
      'ones; gradients that hardly arrive; outputs that are saturated, or far wider than those ' +
      'of similar layers.'));
  return [...(fault ? [] : [make('p', {}, 'No fault was found.')]), ...list, checked];
}

// A table that a click on a heading sorts; columns are {title, value, show, number, class}.
function sortable_table(id, columns, rows) {
  let {by, down} = choices.get(id + ' sorted', {by: null, down: false});
  const heads = columns.map((column, k) => make(
      'th', {scope: 'col', class: column.number ? 'number' : null},
      make('button', {type: 'button', title: 'Sort by this', onclick: () => sort(k)},
           column.title)));
  const lines = rows.map((row, place) => ({row, place, line: make('tr', {}, ...columns.map(
      column => make('td', {class: column.number ? 'number' : column.class,
                            'data-title': column.title}, column.show(row))))}));
  const body = make('tbody');
  function sort(k) {
    if (by !== k) [by, down] = [k, Boolean(columns[k].number)];
    else if (down === Boolean(columns[k].number)) down = !down;
    else by = null;  // the third click: the first order
    choices.set(id + ' sorted', {by, down});
    order();
  }
  function order() {
    const column = columns[by], value = line => column ? column.value(line.row) : line.place;
    const empty = v => v === null || v === undefined;
    const sorted = [...lines].sort((a, b) => {
      const x = value(a), y = value(b);
      if (empty(x) || empty(y)) return empty(x) - empty(y);  // what is unknown stands last
      const less = typeof x === 'number' && typeof y === 'number' ? x - y :
          String(x).localeCompare(String(y));
      return column && down ? -less : less;
    });
    body.replaceChildren(...sorted.map(({line}) => line));
    heads.forEach((head, k) => {
      const way = by !== k ? 'none' : down ? 'descending' : 'ascending';
      head.setAttribute('aria-sort', way);
      head.firstChild.textContent =
          columns[k].title + (by !== k ? '' : down ? ' \u2193' : ' \u2191');
    });
  }
  order();
  return fit_table(make(
      'div', {class: rows.length > 16 ? 'scroll tall' : 'scroll', tabindex: 0, role: 'region',
              'aria-label': 'Table'},
      make('table', {}, make('thead', {}, make('tr', {}, ...heads)), body)));
}

// Loss.
function loss_lines(run, {excess, time, several}) {
  const x = table => (time ? table.elapsed_s : table.step) || [];
  const less = (table, column) => excess ?
      numbers(table[column]).map((v, i) => {
        const best = number(table.best_possible?.[i]);
        return v === null || best === null ? null : v - best;
      }) : table[column];
  const lines = [];
  const add = (table, column, kind, colour, look) => {
    if (last_of(table, column)) lines.push({
      x: x(table), y: less(table, column), colour, ...look, name: kind,
      ...several && {name: `${run.name}: ${kind}`, colour: run.colour, run: run.name, kind}});
  };
  add(run.metrics, 'train_loss', 'training', 0, {smooth: true});
  add(sampled_of(run.validation), 'val_loss', 'validation', 1, {points: true, dash: '7 3'});
  const by_evaluation = last_of(run.validation, 'best_possible');
  if (!excess) add(by_evaluation ? level_of(run, x) : run.metrics, 'best_possible',
                   'best possible', 2, {dash: '2 3', smooth: !by_evaluation});
  return lines;
}
// The best possible loss of the evaluations, which have the same batches: a level, from the first
// step to the last.
function level_of(run, x) {
  const places = [run.metrics || {}, run.validation].flatMap(x).filter(v => number(v) !== null);
  const known = numbers(sampled_of(run.validation).best_possible).flatMap(
      (best, i) => best === null ? [] : [[x(run.validation)[i], best]]);
  const points = [[Math.min(...places), known[0][1]], ...known,
                  [Math.max(...places), known[known.length - 1][1]]];
  const at = points.map(([v]) => v);
  return {step: at, elapsed_s: at, best_possible: points.map(([, best]) => best)};
}
function show_loss({runs}) {
  if (!runs.some(last_loss)) return false;
  const body = body_of('loss'), several = runs.length > 1;
  const known = runs.some(run => last_loss(run)?.best !== null && last_loss(run)?.best > 0);
  const timed = runs.some(run => last_of(run.metrics, 'elapsed_s'));
  const options = () => {
    const axis = choices.get('loss x', 'steps'), time = axis === 'time' && timed;
    const excess = known && choices.get('loss y', 'loss') === 'excess';
    const lines = runs.flatMap(run => loss_lines(run, {excess, time, several}));
    const own = lines.length === 1 ? lines[0].name + ' ' : '';  // without a legend
    return {
      lines, time,
      log_x: axis === 'log', log_y: choices.get('loss log', true),
      smooth: choices.get('loss smooth', usual_smoothing(runs)),
      x_title: time ? 'elapsed time, h:min:s' : 'step',
      y_title: `${own}loss${excess ? ' above best possible' : ''}, nats per token`,
    };
  };
  const choose = name => value => { choices.set(name, value); chart.update(options()); };
  body.append(loss_controls(choose, known, timed, usual_smoothing(runs)));
  const chart = new LineChart(body, {
    id: 'loss', label: 'Loss over steps', height: 400, ...options()});
  if (!several && lowest_loss(runs[0])) body.append(lowest_line(lowest_loss(runs[0])));
  for (const run of runs) {
    const said = joined_text(run);
    if (said) body.append(make('p', {class: 'small'}, `The log ${
        several ? `of ${run.name} ` : ''}is long: ${said}.`));
  }
  return true;
}
// Of a long run's log, neighbouring lines are one point.
function joined_text({joined}) {
  const lines = number(joined?.metrics), evaluations = number(joined?.validation);
  return [
    lines > 1 ? 'a point of the training loss and of the speed is the mean of ' +
        `${show_count(lines)} lines, one of the gradient norm their largest` : '',
    evaluations > 1 ? 'one of the validation loss is the lowest of ' +
        `${show_count(evaluations)} evaluations` : ''].filter(Boolean).join('; ');
}
// Few points are smoothed less, because a smoothed line comes late.
function usual_smoothing(runs) {
  const points = Math.max(...runs.map(run => numbers(run.metrics?.train_loss).length));
  return Math.round(60 * Math.min(1, points / 250)) / 100;
}
function loss_controls(choose, known, timed, usual) {
  const smooth = choices.get('loss smooth', usual), shown = make('output', {}, smooth.toFixed(2));
  const slider = make('input', {type: 'range', min: 0, max: .99, step: .01, value: smooth,
                                'aria-label': 'Smoothing'});
  slider.oninput = () => {
    shown.textContent = Number(slider.value).toFixed(2);
    choose('loss smooth')(Number(slider.value));
  };
  const steps = [['steps', 'steps'], ['log', 'steps, log'], ...(timed ? [['time', 'time']] : [])];
  return make('div', {class: 'controls'},
              known ? button_group('Show', [['loss', 'loss'], ['excess', 'above best possible']],
                                   choices.get('loss y', 'loss'), choose('loss y')) : null,
              button_group('Scale', [[false, 'linear'], [true, 'log']],
                           choices.get('loss log', true), choose('loss log')),
              button_group('Over', steps, choices.get('loss x', 'steps'), choose('loss x')),
              make('label', {}, make('span', {class: 'quiet'}, 'Smoothing'), slider, shown));
}
function lowest_line(low) {
  const on = low.on && `, over ${low.on.replace('whole', 'the whole')}`;
  return make('p', {class: 'small'}, `The lowest validation loss is ${show_number(low.value)}, ` +
      `at step ${show_count(low.step)}${on}` + (above_best(low) === null ? '.' :
          `, ${above_text(low)} compared with the best possible.`));
}

// Speed and schedule.
const kSpeed = [
  {column: 'lr', what: 'learning rate', zero: true},
  {column: 'grad_norm', what: 'gradient norm', more: ', before clipping', log_y: true,
   events: true, noisy: true},
  {column: 'tokens_per_s', what: 'tokens per second', zero: true, noisy: true},
  {column: 'memory_mb', what: 'memory in use, MB', zero: true},
];
const kDashes = [null, '7 3', '2 3', '8 3 2 3', '12 3'];  // not a divisor of the colours' number

function show_speed({runs}) {
  const body = body_of('speed'), link = [], legend_of = line_legend('speed');
  const grid = make('div', {class: 'many'});
  const specs = kSpeed.filter(spec => runs.some(run => last_of(run.metrics, spec.column)));
  if (specs.length === 0) return false;
  const soft = runs.length > 1;  // noisy lines of several runs hide one another
  const options = spec => {
    const time = choices.get('speed x', 'steps') === 'time';
    return {
      time, x_title: time ? 'elapsed time, h:min:s' : 'step', lines: runs.flatMap(
          run => last_of(run.metrics, spec.column) ?
              [{name: soft ? run.name : spec.what, colour: run.colour, smooth: spec.noisy,
                x: (time ? run.metrics.elapsed_s : run.metrics.step) || [],
                y: run.metrics[spec.column], dash: kDashes[run.colour % kDashes.length]}] : []),
      events: spec.events ? runs.flatMap(run => skipped(run, time)) : [],
    };
  };
  if (runs.some(run => last_of(run.metrics, 'elapsed_s'))) body.append(make(
      'div', {class: 'controls'}, button_group(
          'Over', [['steps', 'steps'], ['time', 'time']], choices.get('speed x', 'steps'), x => {
            choices.set('speed x', x);
            charts.forEach((chart, k) => chart.update(options(specs[k])));
          })));
  body.append(legend_of.legend, grid);
  const charts = specs.map(spec => {
    const cell = grid.appendChild(make('div'));
    return new LineChart(cell, {id: spec.column, label: `${spec.what}, over steps`, height: 220,
                                y_title: spec.what + (spec.more || '') +
                                    (soft && spec.noisy ? ', smoothed' : ''),
                                what: soft ? spec.what : '',
                                log_y: spec.log_y, zero: spec.zero, smooth: soft ? .8 : 0,
                                link, legend_of, ...options(spec)});
  });
  body.append(...runs.map(skipped_line).filter(Boolean));
  return true;
}
// The lines of the log at which more steps had been skipped than before.
function skipped(run, time) {
  const counts = numbers(run.metrics?.skipped);
  const x = time ? run.metrics?.elapsed_s : run.metrics?.step;
  let before = 0;
  return counts.flatMap((count, i) => {
    const more = (count || 0) - before;
    if (count !== null) before = count;
    return more > 0 && number(x?.[i]) !== null ?
        [{x: x[i], text: `${run.name}: ${more} skipped up to here`}] : [];
  });
}
function skipped_line(run) {
  const total = last_value(run, 'skipped'), steps = skipped(run, false).map(event => event.x);
  if (!total) return null;
  const shown = steps.slice(0, 8).map(show_count).join(', ') + (steps.length > 8 ? ', \u2026' : '');
  return make('p', {class: 'small'}, `${run.name}: ${show_count(total)} ` +
      (total === 1 ? 'step was' : 'steps were') + ' skipped, because a loss or gradient was not ' +
      `finite. The log says so at ${steps.length === 1 ? 'step' : 'steps'} ${shown}` +
      (last_value(run, 'grad_norm') === null ? '.' :
          ' (dotted lines in the chart of the gradient norm).'));
}

// Model and configuration.
const show_setting = v => v === undefined || v === null ? '\u2013' :
    typeof v === 'string' ? v || '\u201c\u201d' : JSON.stringify(v);
function config_rows(runs) {
  const noted = runs.filter(run => Object.keys(run.config || {}).length > 0);
  const names = [...new Set(noted.flatMap(run => Object.keys(run.config)))];
  return names.map(name => {
    const having = noted.filter(run => Object.hasOwn(run.config, name));
    // What a model lacks differs from what the other has there, unless that is the default.
    const differs = new Set(having.map(run => JSON.stringify(run.config[name]))).size > 1 ||
        having.length < noted.length && having.some(run => Object.hasOwn(run.defaults || {}, name));
    return {name, values: runs.map(run => having.includes(run) ? run.config[name] : null), differs};
  });
}
function config_table(runs, rows) {
  const head = ['Setting', ...(runs.length > 1 ? runs.map(run => run.name) : ['Value'])];
  const box = make(
      'div', {class: runs.length === 1 ? 'columns' : rows.length > 16 ? 'scroll tall labelled' :
              'scroll labelled', tabindex: 0, role: 'region', 'aria-label': 'Settings'},
      make('table', {},
           make('thead', {}, make('tr', {}, ...head.map(
               name => make('th', {scope: 'col'}, name)))),
           make('tbody', {}, ...rows.map(row => make(
               'tr', {class: row.differs ? 'differs' : null},
               make('th', {scope: 'row', class: 'name'}, row.name),
               ...row.values.map((v, i) => make('td', {'data-title': head[i + 1]},
                                                show_setting(v))))))));
  return runs.length === 1 ? box : fit_table(box);
}
function show_model({runs}) {
  const body = body_of('model');
  const rows = config_rows(runs);
  if (rows.length === 0 && !runs.some(run => run.model || run.data || run.machine || run.program ||
                                             run.started || run.model_tree)) return false;
  rows.sort((a, b) => b.differs - a.differs);
  const add = (parent, run) => {
    const facts = [['Model', run.model], ['Data', run.data], ['Machine', run.machine],
                   ['Program', run.program], ['Started', run.started],
                   ['Time taken', number(run.elapsed_s) && show_time(run.elapsed_s)]];
    parent.append(make('dl', {class: 'keys'}, ...facts.filter(([, text]) => text).flatMap(
        ([name, text]) => [make('dt', {}, name), make('dd', {}, String(text))])));
    if (runs.length > 1 && run.command) parent.append(command(run));
    if (!run.model_tree) return;
    const title = 'Layers, with their numbers of parameters';
    const tree = make('pre', {class: 'tree', tabindex: 0}, String(run.model_tree));
    if (runs.length === 1) parent.append(make('h3', {}, title), tree);
    else parent.append(make('details', {}, make('summary', {}, title), tree));
  };
  if (runs.length === 1) add(body, runs[0]);
  else for (const run of runs) {
    body.append(make('h3', {}, swatch(run.colour, null, run.colour), run.whole));
    add(body, run);
  }
  if (rows.length) body.append(make('h3', {}, runs.length > 1 ?
      'Configuration: what differs comes first' : 'Configuration'), config_table(runs, rows));
  return true;
}

// The table of contents, and the section that is being read.
function show_contents() {
  const list = document.querySelector('nav ul'), links = {};
  for (const section of document.querySelectorAll('main > section')) {
    const title = section.id === 'top' ? 'Overview' : section.querySelector('h2').textContent;
    links[section.id] = make('a', {href: '#' + section.id}, title);
    list.append(make('li', {}, links[section.id]));
  }
  const mark = entries => {
    for (const entry of entries) if (entry.isIntersecting) {
      list.querySelector('[aria-current]')?.removeAttribute('aria-current');
      links[entry.target.id].setAttribute('aria-current', 'true');
    }
  };
  const observer = new IntersectionObserver(mark, {rootMargin: '-20% 0px -70% 0px'});
  for (const id of Object.keys(links)) observer.observe(document.getElementById(id));
}

// A page of a run that goes on reloads itself, unless the reader is doing something.
function freshness(data) {
  const every = number(data.reload_s), line = make(
      'p', {class: 'quiet small'}, data.written ? `Written ${data.written}. ` : '');
  if (!(every > 0)) return line;
  const hold = make('button', {
    type: 'button', 'aria-pressed': String(choices.get('hold', false)),
    onclick: () => {
      choices.set('hold', !choices.get('hold', false));
      hold.setAttribute('aria-pressed', String(choices.get('hold')));
    },
  }, 'Hold');
  line.append(`It reloads itself every ${show_count(every)} s, but not while you zoom. `, hold);
  return line;
}
// A run that was killed cannot say so: its page is no longer written.
function tell_silence(data) {
  if (!(number(data.reload_s) > 0) || !(number(data.written_s) > 0)) return;
  const tell = () => {
    if (Date.now() / 1000 - data.written_s < 6 * data.reload_s) return;
    for (const state of document.querySelectorAll('.state.running')) {
      state.className = 'state silent';
      state.textContent = 'no news since ' + data.written;
      state.title = 'It was killed, or has a step or an evaluation that takes long.';
    }
    for (const left of document.querySelectorAll('.left')) left.textContent = '';
    document.title = document.title.replace(/^\d+ % /, '');
  };
  tell();
  setInterval(tell, 5000);
}
function keep_open() {  // the explanations that the reader opened
  const open = new Set(choices.get('open', []));
  for (const details of document.querySelectorAll('details')) {
    const {id} = details.closest('section');
    details.open = open.has(id);
    details.ontoggle = () => {
      if (details.open) open.add(id); else open.delete(id);
      choices.set('open', [...open]);
    };
  }
}
function keep_fresh(data) {
  const scroll = choices.get('scroll');
  if (scroll !== null) scrollTo(0, scroll);
  choices.set('scroll', null);
  if (!(number(data.reload_s) > 0)) return;
  const due = Date.now() + 1000 * data.reload_s;
  let last_key = 0;
  addEventListener('pointerdown', () => busy.add('pointer'), true);
  for (const end of ['pointerup', 'pointercancel'])
    addEventListener(end, () => busy.delete('pointer'), true);
  addEventListener('keydown', () => { last_key = Date.now(); }, true);
  setInterval(() => {
    const waits = busy.size > 0 || document.hidden || choices.get('hold', false) ||
        Date.now() - last_key < 20000 || !getSelection().isCollapsed;
    if (Date.now() < due || waits) return;
    choices.set('scroll', scrollY);
    location.reload();
  }, 1000);
}
