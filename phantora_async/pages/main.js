// Puts the sections on the page. While a run lasts, those whose data has changed are made again.

const SECTIONS = [progress, states, tiles, steps, breakdown, reasons, activity, memory, modules, links, kernels, requests, configuration, notes];

// Sections that say nothing if no GPU was used.
const OF_GPUS = [tiles, steps, breakdown, activity, memory];

function heading(view) {
  const {simulated} = view.report, servers = simulated.servers.length;
  return [
    el('h1', {}, view.title),
    view.unused?.length ? el('div', {class: 'banner bad', role: 'alert'}, view.unused.join('\n')) : null,
    view.jobs ? el('div', {class: 'banner bad', role: 'alert'}, view.jobs) : null,
    el('p', {class: 'faint'}, `${count(simulated.world_size)} x ${simulated.gpu} on ${plural(servers, 'server')} (${simulated.cluster}${simulated.assumed_links ? `; assumed: ${simulated.assumed_links}` : ''}), ` +
      `host ${simulated.host} (${simulated.host_mode}); whole run: ${seconds(simulated.virtual_ns)} simulated, ${plural(simulated.collectives, 'collective')}`),
    banner(view),
  ];
}

function banner(view) {
  const {report, ended} = view;
  if (report.failure) return el('div', {class: 'banner bad', role: 'alert'}, `The run failed with exit code ${report.exit_code}:\n${report.failure.text}`);
  if (report.stopped) return el('div', {class: 'banner good', role: 'status'}, (ended ? ended + '; ' : '') + report.stopped.text);
  if (ended) return el('div', {class: 'banner good', role: 'status'}, `${ended[0].toUpperCase()}${ended.slice(1)}. This page no longer changes.`);
  return liveBanner(view);
}

const focusable = element => [...element.querySelectorAll('a, button, summary, [tabindex]')];

class Page {
  constructor(view) {
    this.view = view;
    this.places = SECTIONS.map(() => el('div'));
    this.seen = SECTIONS.map(() => undefined);
    document.getElementById('main').replaceChildren(...this.places);
    this.draw();
  }

  draw() {
    document.getElementById('head').replaceChildren(...heading(this.view).filter(Boolean));
    SECTIONS.forEach((make, place) => {
      const seen = JSON.stringify(READS.get(make)(this.view));
      if (seen === this.seen[place]) return;
      this.seen[place] = seen;
      forget(this.places[place]);
      const open = [...this.places[place].querySelectorAll('details')].map(one => one.open);
      const focused = focusable(this.places[place]).indexOf(document.activeElement);
      const made = this.view.unused?.length && OF_GPUS.includes(make) ? null : make(this.view);
      this.places[place].replaceChildren(...made ? [made] : []);
      this.places[place].querySelectorAll('details').forEach((one, number) => { one.open = open[number] ?? false; });
      if (focused >= 0) focusable(this.places[place])[focused]?.focus({preventScroll: true});
    });
    const titles = [...document.querySelectorAll('main h2')];
    document.getElementById('contents').replaceChildren(...titles.map(title => el('a', {href: '#' + title.parentElement.id}, title.textContent)));
  }
}

// What each section reads of the view: it is made again when that changes.
const READS = new Map([
  [progress, view => view.live?.progress], [states, view => view.live?.states],
  [tiles, ({binds, report: {simulated: s, simulator}}) => [binds, s.step, s.work, s.memory, s.virtual_ns, s.ranks, simulator.wall_s]],
  [steps, view => view.report.simulated.step], [breakdown, ({report: {simulated: s}}) => [s.ranks, s.step]],
  [activity, ({report: {simulated: s}}) => [s.activity, s.step.from_ns]],
  [reasons, view => view.report.simulated.reasons],
  [memory, ({report: {simulated: s}}) => [s.ranks, s.memory, s.activity]],
  [modules, view => view.report.simulated.modules], [links, view => view.report.simulated.links], [kernels, ({work, report: {simulated: s}}) => [work, s.cost_sources, s.step]],
  [requests, view => view.report.simulated.generation],
  [configuration, ({report}) => [report.simulated.collectives, report.simulator, report.run]], [notes, view => view.notes],
]);

const embedded = JSON.parse(document.getElementById('data').textContent);
if (embedded.report) new Page(embedded);
else follow(embedded);
