// More sections: links, kernels, requests, configuration, notes.

function links(view) {
  const {links} = view.report.simulated;
  if (!links?.kinds.length) return null;
  const parts = Math.ceil(links.until_ns / links.part_ns);
  const described = row => ({...row, describe: part => `${percent(shareAt(row.busy, part), 0)} of ${count(row.gbps)} Gbit/s`});
  const rows = [
    ...links.kinds.filter(kind => kind.links > 1).map(kind => described({...kind, label: `mean of ${kind.kind.split('/').at(-1).replaceAll('#', '')}`})),
    ...links.listed.map(link => described({...link, label: link.name})),
  ];
  let ends;
  const picture = new Heat(`How busy ${plural(rows.length, 'row')} of links were over ${seconds(links.until_ns)}`, {
    id: 'links', rows, parts, part_ns: links.part_ns, until_ns: links.until_ns, marks: stepEnds(view), ...firstShown(view, links),
    paintCell: (row, part) => {
      ends ??= [rgb(colour('--heat0')), rgb(colour('--heat1'))];
      const share = shareAt(row.busy, part), from = share ? 0.15 : 0;  // what is hardly used can be told from what is not
      return [0, 1, 2].map(at => ends[0][at] + (from + (1 - from) * share) * (ends[1][at] - ends[0][at]));
    },
  });
  const recolour = picture.recolour.bind(picture);
  picture.recolour = () => { ends = undefined; recolour(); };
  const busiest = links.listed.reduce((most, link) => link.share > (most?.share ?? -1) ? link : most, null);
  const left = links.links - links.listed.length;
  return section('links', 'Links',
    el('p', {}, `${plural(links.links, 'link')} carried data. Busiest: ${busiest.name}, ${percent(busiest.share)} of its ${count(busiest.gbps)} Gbit/s over the run.`),
    el('p', {class: 'faint'}, 'The darker (or, on a dark page, the brighter) a cell, the more of its capacity a link used: each collective’s bytes, evenly over its duration.' +
      (left ? ` The ${links.listed.length} busiest links are listed; ${count(left)} more are in the means.` : '')),
    picture.element,
    folded('Links as a table', () => table([['link', row => row.name, 'text'], ['capacity', row => `${count(row.gbps)} Gbit/s`],
      ['carried', row => bytes(row.nbytes)], ['used', row => percent(row.share)]], links.listed)));
}

const SHOWN_KERNELS = 20;

// The GPU work of a step and GPU: by family, then the single kernels, which can be searched and sorted.
function kernels(view) {
  const {work} = view, {cost_sources, step} = view.report.simulated;
  if (!work?.kernels?.length) return null;
  const widest = Math.max(work.families[0].share, work.kernels[0].share);
  const shared = one => el('span', {}, el('i', {class: 'bar', style: {width: `${Math.max(1, 80 * one.share / widest)}px`}}), percent(one.share));
  const mean = one => one.launches ? one.ns / one.launches : 0, launched = number => count(+number.toFixed(number < 100 ? 1 : 0));
  const figures = [['share', shared, 'share', one => one.share], ['time', one => seconds(one.ns), '', one => one.ns],
    ['launches', one => launched(one.launches), '', one => one.launches], ['mean', one => seconds(mean(one)), '', mean]];
  const sources = ['measured', 'interpolated', 'roofline', 'unrecognised'].filter(name => name in cost_sources)
    .map(name => `${percent(cost_sources[name])} ${name}`).join(', ');
  const since = cost_sources.window === 'steps' ? countedSteps(step) : 'the whole run';
  const all_ns = work.families.reduce((sum, one) => sum + one.ns, 0);
  return section('kernels', 'GPU work',
    el('p', {}, `Of ${work.where}: ${seconds(all_ns)}, each kernel as if it were alone. Where kernel times in ${since} come from: ${sources}.`),
    work.beside.length ? el('p', {class: 'faint'}, `Also booked as compute: ${work.beside.map(([name, ns]) => `${seconds(ns)} ${name}`).join(', ')}.`) : null,
    el('h3', {}, 'By family'),
    new Rows('families', [['family', one => one.title, 'text long', one => one.title], ...figures], work.families, SHOWN_KERNELS).element,
    el('h3', {}, 'Single kernels'),
    new Rows('work', [['kernel', one => one.title, 'text long', one => one.title], ...figures,
      ['line', one => one.site, 'text', one => one.site], ['family', one => one.family, 'text', one => one.family], ['source', one => one.source, 'text', one => one.source],
      ['bound by', one => one.bound, 'text', one => one.bound]], work.kernels, SHOWN_KERNELS, 'Search kernels, operations, lines, families').element);
}

// The requests of an inference engine: percentiles of all, then the listed ones.
function requests(view) {
  const {serving} = view.report.simulated.generation ?? {};
  if (!serving?.requests) return null;
  const {batch, kv_blocks: blocks} = serving;
  const figures = [['time to first token', serving.first_token_ns], ['time per output token', serving.per_token_ns],
    ['latency', serving.latency_ns]].filter(([, spread]) => spread);
  const one = number => count(+number.toFixed(1));
  return section('requests', 'Requests',
    el('p', {}, `${plural(serving.requests, 'request')} with ${plural(serving.tokens, 'token')}: ${one(serving.requests_per_s)} requests/s and ${one(serving.tokens_per_s)} tokens/s while anything is generated. ` +
      `Batch: ${one(batch.mean)} on average, ${count(batch.most)} at most.` +
      (blocks ? ` KV blocks in use: ${one(blocks.mean)} on average, ${count(blocks.most)} at most, of ${count(blocks.blocks)}.` : '')),
    table([['', ([name]) => name, 'text'], ...['mean', 'median', 'p90', 'p99'].map(key => [key, ([, spread]) => seconds(spread[key])])], figures),
    folded('Requests one by one', () => table([['rank', row => count(row.rank)], ['arrives at', row => seconds(row.arrived_ns)],
      ['prompt', row => count(row.prompt_tokens)], ['tokens', row => count(row.tokens)], ['first token', row => seconds(row.first_token_ns)],
      ['per token', row => row.per_token_ns === null ? '' : seconds(row.per_token_ns)], ['latency', row => seconds(row.latency_ns)]], serving.listed)));
}

function configuration(view) {
  const {simulated, simulator, run} = view.report, servers = simulated.servers;
  const text = value => Array.isArray(value) ? value.join(' ') : typeof value === 'object' ? JSON.stringify(value) : String(value);
  const written = name => '--' + name.replaceAll('_', '-');
  const each = new Set(servers).size === 1 ? `${servers[0]} each` : servers.join(', ');
  return section('configuration', 'Configuration', facts([
    ['script', view.title], ['started', run?.started],
    ['GPU', simulated.gpu], ['cluster', simulated.cluster],
    ['GPUs', `${count(simulated.world_size)} on ${plural(servers.length, 'server')} (${each})`],
    ['host', `${simulated.host} (${simulated.host_mode})`],
    ...Object.entries(run?.options ?? {}).map(([name, value]) => [written(name), text(value)]),
    ...Object.entries(run?.environment ?? {}).map(([name, value]) => [name, text(value)]),
    ...Object.entries(run?.versions ?? {}).map(([name, value]) => [name, text(value)]),
    ['collectives', count(simulated.collectives)],
    ['this machine', `${clock(simulator.wall_s)}; coordinator ${clock(simulator.coordinator_cpu_s)} of processor time, ${bytes(simulator.coordinator_peak_rss_nbytes)}`],
  ]), run?.descriptions ? folded('Descriptions of the GPU, the cluster and the host', () =>
    el('pre', {tabindex: 0}, JSON.stringify(run.descriptions, null, 1))) : null);
}

function notes(view) {
  const found = view.notes ?? [];
  if (!found.length) return null;
  const warning = text => /^warning\b/.test(text);
  return section('notes', 'Notes and warnings', el('ul', {class: 'notes'},
    [...found.filter(warning), ...found.filter(text => !warning(text))].map(text => el('li', {class: warning(text) ? 'warning' : null}, text))));
}
