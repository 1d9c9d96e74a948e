// Why a step takes as long as it does (run --reasons): its critical path in parts and as a picture, and what would change.

const CAUSES = {
  compute: ['compute', '--compute'], communication: ['communication that nothing hides', '--transfer'], copies: ['copies', '--good'],
  host: ['the GPU waits for the host', '--host_bound'], peer: ['one rank works while its peer waits for it', '--peers'],
  straggler: ['one rank works while half of the others or more wait for it', '--bad'],
};
const causeName = kind => CAUSES[kind]?.[0] ?? kind;
const causeColour = kind => CAUSES[kind]?.[1] ?? '--idle';

// The critical path: a row for each rank on it, over the time of the step.
class CriticalPath extends Picture {
  constructor(path, step_ns) {
    const ranks = [...new Set(path.map(piece => piece.rank))].sort((a, b) => a - b);
    const rowHeight = Math.max(3, Math.min(22, Math.floor(360 / ranks.length)));
    super(`The critical path of a step through ${plural(ranks.length, 'rank')}, ${plural(path.length, 'piece')}`, ranks.length * rowHeight + AXIS);
    Object.assign(this, {path, step_ns, ranks, rowHeight});
    this.rowOf = new Map(ranks.map((rank, row) => [rank, row]));
  }

  left() { return Math.min(80, this.canvas.clientWidth * 0.2); }
  x(at_ns) { return this.left() + at_ns / this.step_ns * (this.canvas.clientWidth - this.left()); }
  cells() { return [this.path.length, 1]; }

  cellAt(x) {
    const at_ns = (x - this.left()) / (this.canvas.clientWidth - this.left()) * this.step_ns;
    const found = this.path.findIndex(piece => piece.start_ns <= at_ns && at_ns < piece.end_ns);
    return found < 0 ? null : [found, 0];
  }

  describe(number) {
    const {rank, start_ns, end_ns, kind, name} = this.path[number];
    return `rank ${rank}, ${seconds(start_ns)} to ${seconds(end_ns)} (${seconds(end_ns - start_ns)}): ${causeName(kind)}: ${name}`;
  }

  paint(context, width, height) {
    const {path, ranks, rowHeight} = this, bottom = height - AXIS, pieceWidth = piece => Math.max(this.x(piece.end_ns) - this.x(piece.start_ns), 0.6);
    context.fillStyle = colour('--unused');
    ranks.forEach((_, row) => context.fillRect(this.left(), row * rowHeight, width - this.left(), rowHeight - 1));
    for (const piece of path) {
      context.fillStyle = colour(causeColour(piece.kind));
      context.fillRect(this.x(piece.start_ns), this.rowOf.get(piece.rank) * rowHeight, pieceWidth(piece), rowHeight - 1);
    }
    if (this.cursor) {
      const piece = path[this.cursor[0]];
      context.strokeStyle = colour('--text');
      context.lineWidth = 1.5;
      context.strokeRect(this.x(piece.start_ns) - 1, this.rowOf.get(piece.rank) * rowHeight, pieceWidth(piece) + 2, rowHeight - 1);
    }
    context.fillStyle = colour('--faint');
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    const every = Math.max(1, Math.ceil(14 / rowHeight));
    for (let row = 0; row < ranks.length; row += every) context.fillText(`rank ${ranks[row]}`, this.left() - 6, (row + 0.5) * rowHeight);
    context.textAlign = 'center';
    context.textBaseline = 'alphabetic';
    for (const at_ns of ticks(this.step_ns, Math.max(2, Math.floor((width - this.left()) / 110))).filter(at_ns => at_ns <= this.step_ns)) {
      const text = at_ns ? tick(seconds)(at_ns) : '0', half = context.measureText(text).width / 2;
      context.fillRect(this.x(at_ns), bottom, 1, 4);
      context.fillText(text, Math.min(this.x(at_ns), width - half), height - 4);
    }
  }
}

function reasons(view) {
  const told = view.report.simulated.reasons;
  if (!told) return null;
  if (told.missing) return section('reasons', 'Why a step takes so long', el('p', {}, `No reasons are given: ${told.missing}.`));
  const step_ns = Math.max(told.ns, 1), kinds = [...new Set(told.parts.map(part => part.kind))];
  const sum = kind => told.parts.filter(part => part.kind === kind).reduce((sum, part) => sum + part.ns, 0);
  kinds.sort((a, b) => sum(b) - sum(a));
  const bar = (part, colour) => el('i', {class: 'bar', style: {width: `${Math.max(1, 90 * part / step_ns)}px`, background: `var(${colour})`}});
  const shared = part => el('span', {}, bar(part.ns, causeColour(part.kind)), percent(part.ns / step_ns));
  const change = one => Math.abs(one.ns / step_ns - 1) < 0.0005 ? 'no change' : `${one.ns < step_ns ? '−' : '+'}${percent(Math.abs(one.ns / step_ns - 1))}`;
  return section('reasons', 'Why a step takes so long',
    el('p', {}, `Step ${told.step} takes ${seconds(told.ns)}. Of its critical path, through all ranks: ` +
      kinds.map(kind => `${percent(sum(kind) / step_ns)} ${causeName(kind)}`).join(', ') + '.'),
    told.path.length ? [new CriticalPath(told.path, step_ns).element, legend(kinds.map(kind => [causeName(kind), causeColour(kind)]))] : null,
    el('h3', {}, 'The parts of the path'),
    table([['share', shared, 'share'], ['time', part => seconds(part.ns)], ['why', part => causeName(part.kind), 'text'],
      ['what', part => part.doing ? `${part.name} (${part.doing})` : part.name, 'text long']], told.parts.slice(0, SHOWN_KERNELS)),
    told.what_if.length ? [el('h3', {}, 'If one resource were twice as fast'),
      table([['resource', one => one.resource, 'text'], ['a step would take', one => seconds(one.ns)], ['change', change]], told.what_if)] : null);
}
