// What only a page of a run that lasts has: progress, what ranks are doing, and the stream of what changes.

const STATES = [['starting', 's', '--idle'], ['running', 'r', '--compute'], ['waiting', 'w', '--transfer'], ['finished', 'f', '--good']];

function progress(view) {
  const told = view.live?.progress;
  if (!told) return null;
  const counts = STATES.map(([name]) => [name, told[name]]).filter(([, number]) => number).map(([name, number]) => `${count(number)} ${name}`);
  const ahead = told.ahead_ns > told.virtual_ns ? `; some ranks are at ${seconds(told.ahead_ns)}` : '';
  const {whole} = told, rest = whole?.remaining_s;
  const bar = whole ? el('progress', {max: 1, value: whole.share, 'aria-label': `${percent(whole.share)} done`}) : null;
  const left = !whole ? 'How much is left is not known: neither --steps, --until nor the script’s log tells.'
    : `${percent(whole.share)} done (${whole.source})` + (rest === null ? '' : `; about ${clock(rest)} left on this machine`);
  return section('progress', 'Progress', bar, el('p', {}, left), facts([
    ['virtual time', seconds(told.virtual_ns) + ahead], ['real time', clock(told.elapsed_s)],
    ['steps that every rank has done', count(told.steps)], ['ranks', counts.join(', ')],
  ]), told.stall ? el('p', {class: 'stall'}, told.stall) : null);
}

// One cell for each rank, in rows.
class States extends Picture {
  constructor(each, doing) {
    super(`What each of ${plural(each.length, 'rank')} is doing`, 10);
    this.each = each;
    this.doing = doing;
  }

  size() {
    const width = Math.max(this.canvas.clientWidth, 1), least = this.each.length > 400 ? 8 : 18;
    const columns = Math.max(1, Math.min(this.each.length, Math.floor(width / least)));
    return {columns, side: Math.min(width / columns, 28), rows: Math.ceil(this.each.length / columns)};
  }

  cells() {
    const {columns, rows} = this.size();
    return [columns, rows];
  }

  cellAt(x, y) {
    const {columns, side} = this.size(), column = Math.floor(x / side), row = Math.floor(y / side);
    return column < columns && row * columns + column < this.each.length ? [column, row] : null;
  }

  describe(column, row) {
    const rank = row * this.size().columns + column;
    return rank < this.each.length ? `rank ${rank}: ${this.doing(rank)}` : '';
  }

  draw() {
    const {rows, side} = this.size();
    this.height = Math.ceil(rows * side);
    super.draw();
  }

  paint(context) {
    const {columns, side} = this.size(), colours = new Map(STATES.map(([, letter, name]) => [letter, colour(name)]));
    [...this.each].forEach((letter, rank) => {
      const x = rank % columns * side, y = Math.floor(rank / columns) * side;
      context.fillStyle = colours.get(letter);
      context.fillRect(x + 0.5, y + 0.5, side - 1.5, side - 1.5);
    });
    if (this.cursor) {
      context.strokeStyle = colour('--text');
      context.lineWidth = 2;
      context.strokeRect(this.cursor[0] * side + 1, this.cursor[1] * side + 1, side - 2, side - 2);
    }
  }
}

function states(view) {
  const told = view.live?.states;
  if (!told) return null;
  const names = new Map(STATES.map(([name, letter]) => [letter, name]));
  const doing = rank => told.groups.find(group => group.ranks.includes(rank))?.doing ?? names.get(told.each[rank]);
  return section('states', 'What ranks are doing',
    new States(told.each, doing).element, legend(STATES.map(([name, , colour]) => [name, colour])),
    table([['ranks', group => compact(group.ranks), 'text'], ['doing', group => group.doing, 'text long']], told.groups),
    told.left_out ? el('p', {class: 'faint'}, `${plural(told.left_out, 'more group')} of ranks`) : null);
}

function liveBanner(view) {
  if (view.lost) return el('div', {class: 'banner bad', role: 'status'}, 'The connection to the run is lost; what is shown is its last state. ' +
    'If the run still lasts, the page connects again by itself.');
  return view.live ? el('div', {class: 'banner', role: 'status'}, 'The run is under way. This page changes as it goes on.') : null;
}

// The first state makes the page; later ones replace what has changed.
function follow(view) {
  const source = new EventSource('events' + location.search);
  let page = null;
  document.getElementById('main').replaceChildren(el('p', {role: 'status'}, 'Waiting for the first figures …'));
  const draw = () => {
    if (page) page.draw();
    else if (view.report?.simulator) page = new Page(view);
    else if (view.ended || view.lost) document.getElementById('main').replaceChildren(el('p', {role: 'status'}, view.ended ?? 'The connection to the run is lost.'));
  };
  source.onmessage = event => {
    view.lost = false;
    for (const [name, value] of Object.entries(JSON.parse(event.data))) {
      const path = name.split('.'), last = path.pop();
      let at = view;
      for (const key of path) at = at[key] ??= {};
      at[last] = value;
    }
    draw();
  };
  source.addEventListener('over', () => {
    source.close();
    view.live = null;
    draw();
  });
  source.onerror = () => {
    view.lost = true;
    draw();
  };
}
