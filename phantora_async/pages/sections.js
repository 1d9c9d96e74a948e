// The sections of the report. Each takes the view (view.py) and returns an element, or null if it has nothing to show.

const MEANINGS = ACCOUNTS.map(({title, meaning}) => `${title}: ${meaning}`).join(' ');

function section(id, title, ...children) {
  return el('section', {id, 'aria-labelledby': `${id}-title`}, el('h2', {id: `${id}-title`}, title), ...children);
}

function tiles(view) {
  const {step, work, memory, virtual_ns, world_size, gpu, ranks} = view.report.simulated, {interval} = step;
  const largest = Math.max(...ranks.map(rank => rank.memory.reserved_peak_nbytes));
  const whole = ns => seconds(ns).replace(' ', '\u00a0');  // a figure stays with its unit
  const tile = (name, value, more, kind) => el('div', {class: kind}, el('dt', {}, name), el('dd', {}, value, more ? el('small', {}, more) : null));
  const titled = (name, ...rest) => tile(FIGURES[name].title, ...rest);
  const [binds, why] = view.binds ?? [];
  const counted = step.counted > 1 ? `median of ${countedSteps(step)}` : countedSteps(step);
  return el('dl', {class: 'tiles', id: 'key'},
    ...(view.live ? [] : fits(memory)).map(said => tile('Memory', ...said)),
    (view.live || view.report.exit_code) && !hasSteps(step) ? null : titled('step_time', seconds(step.median_ns), counted),
    interval && !(view.report.exit_code && !hasSteps(step)) ? tile(`${percent(interval.level, 0)} interval`, `${whole(interval.low_ns)} to ${whole(interval.high_ns)}`) : null,
    binds ? tile('Bound by', binds, why) : null,
    work.flops ? titled('mfu', percent(work.mfu), `${work.tflops_per_gpu.toFixed(1)} TFLOP/s per GPU in ${ranksWindow(view)}`) : null,
    largest ? titled('peak_reserved', size(largest), `at most by any rank in ${FIGURES.peak_reserved.window}`) : null,
    view.report.simulated.independent ? tile('Jobs', `${count(world_size)} independent ones`, 'no rank was in a process group') : null,
    tile('GPUs', `${count(world_size)} x ${gpu}`, `${plural(view.report.simulated.servers.length, 'server')}; ${seconds(virtual_ns)} simulated in ${clock(view.report.simulator.wall_s)} on this machine`));
}

// Whether the job fits the GPU; nothing if the report does not tell, or if no GPU memory was used.
function fits(memory) {
  const verdict = memory?.verdict;
  if (!verdict || !memory.max_allocated_nbytes) return [];
  const needed = `rank ${verdict.rank} needs ${verdict.fits ? '' : 'at least '}${size(verdict.needed_nbytes)} of ${size(memory.total_nbytes)}`;
  if (verdict.fits) return [['Fits', `${needed}, ${percent(verdict.needed_nbytes / memory.total_nbytes, 0)}; ${size(verdict.left_nbytes)} are left`, 'good']];
  const missing = verdict.missing_nbytes ? `; ${size(verdict.missing_nbytes)} are missing` : '', at = verdict.site ? `, at ${verdict.site}` : '';
  if (verdict.others_nbytes) return [['Does not fit', `the GPU of ${needed.replace('needs', 'would need')}, ${size(verdict.others_nbytes)} of it for other ranks${missing}`, 'bad']];
  return [['Does not fit', (verdict.missing_nbytes ? needed + missing
    : `rank ${verdict.rank} asked for ${size(verdict.asked_nbytes)}; the cache is in pieces that are too small`) + at, 'bad']];
}

// The windows of figures, in words: "steps 4 to 5".
const stepsNamed = (first, last) => first === last ? `step ${first}` : `steps ${first} to ${last}`;
const countedSteps = step => !hasSteps(step) ? 'the whole run'
  : step.first_counted === undefined || step.last_counted === undefined ? 'the steps that count' : stepsNamed(step.first_counted, step.last_counted);

function ranksWindow(view) {
  const {ranks, step} = view.report.simulated;
  if (ranks.every(rank => rank.window === 'run')) return 'the whole run';
  return countedSteps(step) + (ranks.some(rank => rank.window === 'run') ? ' (a rank without two optimizer steps: the whole run)' : '');
}

// A run that lasts may have none yet.
const hasSteps = step => !step.source.startsWith('the whole run');

function steps(view) {
  const {step} = view.report.simulated, each = step.each_ns ?? [];
  if (!each.length || ((view.live || view.report.exit_code) && !hasSteps(step))) return null;
  const first = step.first_listed ?? (step.warm_up + step.counted) - each.length + 1;  // the number of the first one listed
  const counts = place => place + first >= (step.first_counted ?? step.warm_up + 1);
  const lines = [{value: step.median_ns, name: 'median', colour: '--text'}];
  const picture = new Columns(`Time of each of ${each.length} steps; median ${seconds(step.median_ns)}`, {
    labels: place => `step ${place + first}`, form: seconds, lines,
    band: step.interval ? [step.interval.low_ns, step.interval.high_ns] : null,
    series: [{name: '', colour: '--bar', values: each, colourOf: place => counts(place) ? '--bar' : '--pale'}],
  });
  const host = step.host_median_ns === null ? '' : `, ${seconds(step.host_median_ns)} on the host`;
  const range = step.counted > 1 ? `; ${seconds(step.min_ns)} to ${seconds(step.max_ns)}` : '';
  return section('steps', 'Step times',
    el('p', {}, `A step takes ${seconds(step.median_ns)}${host} (${step.counted > 1 ? 'median of ' : ''}${countedSteps(step)}${range}). Steps from: ${step.source}.` +
      (first === 2 ? ' Step 1 begins with the run and is not timed.' : '')),
    picture.element,
    legend([['counted', '--bar'], ...(step.warm_up ? [['warm-up, not counted', '--pale']] : []),
      ...(step.interval ? [['90% interval', '--accent', 'band']] : []), ['median', '--text', 'dashed']]),
    folded('Steps as a table', () => table([['step', row => row.step], ['time', row => seconds(row.for_ns)], ['ns', row => count(row.for_ns)],
      ['', row => row.counted ? '' : 'warm-up', 'text']], each.map((for_ns, place) => ({step: place + first, for_ns, counted: counts(place)})))));
}

// A report of an older version lacks an account that came later.
const spent = rank => ACCOUNTS.reduce((sum, {ns}) => sum + (rank[ns] ?? 0), 0);
const share = (rank, key) => spent(rank) ? (rank[key] ?? 0) / spent(rank) : 0;

function breakdown(view) {
  const {ranks} = view.report.simulated;
  if (!ranks.some(spent)) return null;
  const accounts = ACCOUNTS.filter(({ns, common}) => common || ranks.some(rank => share(rank, ns) >= LEAST_SHOWN));
  const picture = new Columns(`Where the time of ${plural(ranks.length, 'GPU')} goes`, {
    labels: place => `rank ${ranks[place].rank}`, form: percent, axis: value => percent(value, 0), stacked: true, most: 1,
    series: accounts.map(({title, ns, colour}) => ({name: title, colour, values: ranks.map(rank => share(rank, ns))})),
  });
  const mean = key => ranks.reduce((sum, rank) => sum + share(rank, key), 0) / ranks.length;
  return section('ranks', 'Where each GPU’s time goes',
    el('p', {}, `Mean over ranks, in ${ranksWindow(view)}: ${accounts.map(({title, ns}) => `${percent(mean(ns))} ${title}`).join(', ')}.`),
    el('p', {class: 'faint'}, MEANINGS),
    picture.element, legend(accounts.map(({title, colour}) => [title, colour])),
    folded('Ranks as a table', () => table([['rank', rank => rank.rank],
      ...accounts.map(({title, ns}) => [title, rank => percent(share(rank, ns))]),
      ['allocated', rank => peak(rank.memory.allocated_peak_nbytes)], ['reserved', rank => peak(rank.memory.reserved_peak_nbytes)]], ranks)));
}

// Instants at which the listed steps end, in ns; the first is where the first of them begins.
function stepEnds(view) {
  const {from_ns, each_ns} = view.report.simulated.step, ends = [];
  if (from_ns === undefined || !each_ns) return ends;
  let at_ns = from_ns;
  for (const for_ns of [0, ...each_ns]) ends.push(at_ns += for_ns);
  return ends;
}

function firstShown(view, over) {
  const ends = stepEnds(view);
  return ends.length > 2 && !view.live ? {from_ns: ends.at(-Math.min(4, ends.length)), to_ns: ends.at(-1)} : {from_ns: 0, to_ns: over.until_ns};
}

const rowLabel = row => row.ranks.length > 6 ? `${named(row.ranks)}`.slice(0, 22) : named(row.ranks);

function activity(view) {
  const {activity} = view.report.simulated;
  if (!activity?.ranks.some(row => row.compute)) return null;
  const accounts = ACCOUNTS.filter(({name, common}) => common || activity.ranks.some(row => /[^A]/.test(row[name] ?? '')));
  const parts = Math.max(...activity.ranks.map(row => row.compute.length));
  const rows = activity.ranks.map(row => ({...row, label: rowLabel(row), describe: part => {
    const said = accounts.map(({name, title}) => [title, shareAt(row[name], part)]).filter(([, share]) => share > 0);
    return said.length ? said.map(([title, share]) => `${percent(share, 0)} ${title}`).join(', ') : 'GPU not used yet';
  }}));
  const picture = new Heat(`What ${plural(rows.length, 'row')} of ranks did over ${seconds(activity.until_ns)}`, {
    id: 'activity', rows, parts, part_ns: activity.part_ns, until_ns: activity.until_ns, marks: stepEnds(view), ...firstShown(view, activity),
    shares: (row, part) => accounts.map(({name}) => shareAt(row[name], part)),
    colours: () => [...accounts.map(one => one.colour), '--unused'].map(name => rgb(colour(name))),
  });
  return section('activity', 'Ranks over time',
    el('p', {class: 'faint'}, `Each cell is ${seconds(activity.part_ns)} of a GPU; its colours have the heights of their shares. Ranks that did the same share a row. ` +
      'Lines are ends of steps. Double-click zooms; arrow keys, + and − do with the keyboard.'),
    picture.element, legend([...accounts.map(({title, colour}) => [title, colour]), ['not used yet', '--unused']]));
}

// The axis of a picture of memory: round steps in the largest unit of which there is one.
function sizeAxis(most) {
  const [unit, name] = most >= 2 ** 30 ? [2 ** 30, 'GiB'] : most >= 2 ** 20 ? [2 ** 20, 'MiB'] : [2 ** 10, 'KiB'];
  return {unit, axis: value => `${+(value / unit).toPrecision(3)} ${name}`};
}

function memory(view) {
  const {ranks, memory, activity} = view.report.simulated;
  if (!ranks.some(rank => rank.memory.reserved_peak_nbytes)) return null;
  const largest = key => Math.max(...ranks.map(rank => rank.memory[key]));
  const capacity = memory?.capacity_nbytes;
  const reserved = largest('reserved_peak_nbytes'), near = capacity && capacity < 3 * reserved;  // a far line would leave the columns no height
  const picture = new Columns(`Peak memory of ${plural(ranks.length, 'rank')}; largest ${size(reserved)} reserved`, {
    labels: place => `rank ${ranks[place].rank}`, form: size, ...sizeAxis(reserved),
    lines: near ? [{value: capacity, name: 'capacity', colour: '--bad'}] : [],
    series: [
      {name: 'reserved', colour: '--pale', values: ranks.map(rank => rank.memory.reserved_peak_nbytes)},
      {name: 'allocated', colour: '--bar', values: ranks.map(rank => rank.memory.allocated_peak_nbytes)},
    ],
  });
  const said = `Largest peak in the whole run: ${size(largest('allocated_peak_nbytes'))} allocated${least(memory)}, ${size(reserved)} reserved${capacity ? `; PyTorch can use ${size(capacity)} of the GPU` : ''}.`;
  return section('memory', 'Memory', el('p', {}, said), ...remarks(memory), lacking(memory), categories(memory?.fullest), overStep(memory?.fullest, capacity), el('h3', {}, 'Largest peaks of each rank'), picture.element,
    legend([['allocated', '--bar'], ['reserved', '--pale'], ...(near ? [['capacity', '--bad', 'dashed']] : [])]), growth(activity));
}

const CATEGORIES = [
  ['parameters', '--parameters'], ['gradients', '--gradients'], ['optimizer state', '--optimizer'], ['activations', '--activations'],
  ['temporaries', '--temporaries'], ['communication buffers', '--buffers'], ['not told', '--faint'], ['cached or fragmented', '--pale'],
  ['outside PyTorch', '--unused'], ['other ranks', '--bad'],
];

// Memory that grows, and memory on GPUs of other ranks.
function remarks(memory) {
  const {growth, guests = []} = memory ?? {};
  const of = ranks => ranks.length > 1 ? `ranks ${ranks.join(', ')} hold` : `rank ${ranks[0]} holds`;
  const lines = guests.map(one => `${of(one.ranks)} ${size(one.nbytes)} each on GPU ${one.gpu} of server ${one.server}, which is rank ${one.owner}’s` +
    `${one.site ? `, from ${one.site}` : ''}; a context of ${size(one.context_nbytes)} comes with it.`);
  if (growth) {
    const by = growth.equal ? `${size(growth.nbytes)} in each of the last ${growth.steps} steps` : `${size(growth.nbytes)} a step in the last ${growth.steps}`;
    lines.push(`Allocated memory grows by ${by}${growth.op ? `, asked for by ${growth.op}` : ''}${growth.site ? ` at ${growth.site}` : ''}; ` +
      `it fills the GPU after ${count(growth.steps_left)} more.`);
  }
  return lines.map(line => el('p', {class: 'stall'}, line));
}

// Of a job that does not fit: what the GPU holds at the failed request, and above its capacity what is missing.
function lacking(memory) {
  const {verdict, fullest, total_nbytes: total} = memory ?? {};
  if (!verdict || verdict.fits || !verdict.missing_nbytes) return null;
  const asked = verdict.asked_nbytes ?? verdict.others_nbytes, held = Math.max(verdict.needed_nbytes - asked, 0);
  const room = Math.max(Math.min(asked, total - held), 0), name = verdict.others_nbytes ? 'of other ranks'
    : `room for a part of the ${size(asked)} asked for${verdict.site ? ` at ${verdict.site}` : ''}:`;
  const parts = [['in use', '--faint', held], [name, '--pale', room], ['missing', '--bad', verdict.missing_nbytes]].filter(([, , nbytes]) => nbytes > 0);
  const wide = nbytes => `${100 * nbytes / verdict.needed_nbytes}%`;
  return [el('h3', {}, `Rank ${verdict.rank} needs at least ${size(verdict.needed_nbytes)} of ${size(total)}`),
    el('div', {class: 'lacking'},
      el('div', {class: 'stack', role: 'img', 'aria-label': parts.map(([name, , nbytes]) => `${name} ${size(nbytes)}`).join(', ')},
        parts.map(([, colour, nbytes]) => el('i', {style: {width: wide(nbytes), background: `var(${colour})`}}))),
      el('b', {class: 'limit', style: {left: wide(total)}}, el('span', {}, `capacity ${size(total)}`))),
    legend(parts.map(([name, colour, nbytes]) => [`${name} ${size(nbytes)}`, colour]))];
}

// Of the peak, if it depends on timing.
function least(memory) {
  const {least_allocated_nbytes: nbytes, max_allocated_nbytes: most} = memory ?? {};
  return nbytes && nbytes < most ? ` (${size(nbytes)} at least: it depends on when NCCL’s watchdog finds collectives done)` : '';
}

// What the memory of the fullest rank holds at its peak: one bar, and who asked for most of it.
function categories(fullest) {
  const held = CATEGORIES.filter(([name]) => fullest?.parts[name]);
  if (!held.length) return null;
  const total = held.reduce((sum, [name]) => sum + fullest.parts[name], 0);
  const said = held.map(([name, colour]) => [`${name} ${size(fullest.parts[name])}`, colour]);
  return [el('h3', {}, `Rank ${fullest.rank} at its peak: ${size(total)}`),
    el('div', {class: 'stack', role: 'img', 'aria-label': said.map(([text]) => text).join(', ')},
      held.map(([name, colour]) => el('i', {style: {width: `${100 * fullest.parts[name] / total}%`, background: `var(${colour})`}}))),
    legend(said),
    fullest.holders.length ? folded('Who asked for it', () => table([['bytes', one => size(one.nbytes)], ['blocks', one => count(one.blocks)],
      ['what', one => one.part, 'text'], ['operation', one => one.op, 'text'], ['line', one => one.site, 'text long']], fullest.holders)) : null];
}

// What the fullest rank has allocated over the step that has its peak.
function overStep(fullest, capacity) {
  const step = fullest?.over_step;
  if (!step || step.most_nbytes.length < 2 || step.allocations < 2) return null;
  const points = step.most_nbytes.length, held = CATEGORIES.filter(([name]) => step.parts[name]);
  const ends = step.most_nbytes.map((_, point) => held.reduce((sum, [name]) => sum + step.parts[name][point], 0));
  const brief = step.most_nbytes.map((most, point) => Math.max(most - ends[point], 0));
  const series = [...held.map(([name, colour]) => ({name, colour, values: step.parts[name]})),
    {name: 'more for a moment', colour: '--pale', values: brief}];
  const most = Math.max(...step.most_nbytes);
  const picture = new Columns(`What rank ${fullest.rank} has allocated over ${plural(step.allocations, 'allocation')}; at most ${size(most)}`, {
    labels: point => percent(points > 1 ? point / (points - 1) : 1, 0), form: size, ...sizeAxis(most),
    across: {until: 1, form: share => percent(share, 0)}, stacked: true, series, lines: capacity && capacity < 1.5 * most ? [{value: capacity, name: 'capacity', colour: '--bad'}] : [],
  });
  return [el('h3', {}, `Rank ${fullest.rank} over the step that has its peak`),
    el('p', {class: 'faint'}, `From left to right: the step’s ${plural(step.allocations, 'allocation')}, in the order in which the program asked for them. ` +
      'Communication buffers are among temporaries here.'),
    picture.element, legend(series.map(one => [one.name, one.colour]))];
}

// How the peaks came about: the largest of any rank until each instant.
function growth(activity) {
  const parts = activity ? Math.ceil(activity.until_ns / activity.part_ns) : 0;
  if (!parts || !activity.ranks.some(row => row.reserved?.length)) return null;
  const until = name => {
    const values = new Array(parts).fill(0);
    for (const row of activity.ranks) {
      let place = 0, now = 0;
      for (let part = 0; part < parts; part++) {
        while (place < row[name].length && row[name][place][0] <= part + 1) now = row[name][place++][1];
        values[part] = Math.max(values[part], now);
      }
    }
    return values;
  };
  const reserved = until('reserved');
  const picture = new Columns('Growth of the largest memory peaks over time', {
    height: 140, across: {until: parts * activity.part_ns, form: seconds}, labels: part => seconds((part + 1) * activity.part_ns), form: size, ...sizeAxis(Math.max(...reserved)),
    series: [{name: 'reserved', colour: '--pale', values: reserved}, {name: 'allocated', colour: '--bar', values: until('allocated')}],
  });
  return [el('h3', {}, 'Peaks over time, of the rank that has most'), picture.element];
}
