// A flame graph of the program's modules: the outermost above, each frame as wide as its time or memory, itself and all
// within it together. A frame is a button: it fills the picture, and the arrow keys go from one to the next.

const wantedFlame = {of: 'time', path: [], text: ''};  // what the user has chosen
const THINNEST = 0.0015;  // the share of the picture below which a frame is left out
const FLAME_ROW = 22;

// parts: [{path, class, own: name of what is at the module's own end, value}]. Returns the tree.
function moduleTree(parts) {
  const root = {name: 'all', kind: '', value: 0, self: 0, children: new Map(), parent: null, depth: 0};
  for (const part of parts) {
    if (!(part.value > 0)) continue;
    let node = root;
    for (const name of part.path) {
      if (!node.children.has(name)) node.children.set(name, {name, kind: '', value: 0, self: 0, children: new Map(), parent: node, depth: node.depth + 1});
      node.value += part.value;
      node = node.children.get(name);
    }
    node.value += part.value;
    node.self += part.value;
    node.kind ||= part.class;
    const leaf = `\n${part.own}`;  // no name of a module begins so
    if (!node.children.has(leaf)) node.children.set(leaf, {name: part.own, kind: '', value: 0, self: 0, own: true, children: new Map(), parent: node, depth: node.depth + 1});
    node.children.get(leaf).value += part.value;
  }
  return root;
}

const flamePath = node => node.parent ? [...flamePath(node.parent), (node.own ? '\n' : '') + node.name] : [];
const flameName = node => flamePath(node).map(name => name.trim()).join('.') || 'all modules';
// blocks.2 comes before blocks.10, and a module's own work last.
const inOrder = node => [...node.children.values()].sort((a, b) => (a.own ?? false) - (b.own ?? false) || a.name.localeCompare(b.name, 'en', {numeric: true}));

class Flame {
  constructor(root, form, what) {
    Object.assign(this, {root, form, what});
    this.said = el('output', {'aria-live': 'polite'});
    this.frames = el('div', {class: 'flame', role: 'group', 'aria-label': `${what} by module`});
    this.field = el('input', {type: 'search', placeholder: 'Search modules, classes, families', 'aria-label': 'Search modules, classes, families', value: wantedFlame.text,
      oninput: event => { wantedFlame.text = event.target.value; this.draw(); }});
    this.element = el('div', {class: 'rows'}, this.field, this.frames, this.said);
    this.draw();
  }

  zoomed() {
    let node = this.root;
    for (const name of wantedFlame.path) node = node.children.get(name) ?? node;
    return node;
  }

  describe(node) {
    const self = node.own || !node.parent ? '' : `; its own: ${this.form(node.self)} (${percent(node.self / this.root.value)})`;
    return `${flameName(node)}${node.kind ? ` (${node.kind})` : ''}: ${this.form(node.value)}, ${percent(node.value / this.root.value)} of all${self}`;
  }

  draw(focused) {
    const top = this.zoomed(), made = [], above = [];
    for (let node = top.parent; node; node = node.parent) above.unshift(node);
    const words = wantedFlame.text.toLowerCase().split(/\s+/).filter(Boolean);
    const found = node => words.length > 0 && words.every(word => `${flameName(node)} ${node.kind}`.toLowerCase().includes(word));
    let hits = 0, rows = 0, thin = 0;
    const add = (node, from, share, within) => {
      const hit = found(node), row = node.depth;
      if (hit && !within) hits += node.value;
      if (share < THINNEST) { thin += node.own ? 0 : 1; return; }
      rows = Math.max(rows, row + 1);
      const kind = node.own ? 'own' : '', name = node.kind && share > 0.08 ? `${node.name}: ${node.kind}` : node.name;
      const frame = el('button', {type: 'button', class: `frame ${kind} ${hit ? 'hit' : words.length ? 'faded' : ''}`, tabindex: node === (focused ?? top) ? 0 : -1, title: this.describe(node),
        style: {left: `${100 * from}%`, width: `${100 * share}%`, top: `${row * FLAME_ROW}px`},
        onclick: () => this.zoom(node.own ? node.parent : node), onfocus: () => this.tell(node), onmouseenter: () => this.tell(node), onkeydown: event => this.key(event, node)}, name);
      made.push(frame);
      node.frame = frame;
    };
    const below = (node, from, share, within) => {
      add(node, from, share, within);
      let at = from;
      for (const child of inOrder(node)) {  // what is too thin to be drawn is counted and searched
        const part = node.value && share * child.value / node.value;
        below(child, at, part, within || found(node));
        at += part;
      }
    };
    above.forEach(node => add(node, 0, 1, true));
    below(top, 0, 1, false);
    this.frames.replaceChildren(...made);
    this.frames.style.height = `${rows * FLAME_ROW}px`;
    const said = words.length ? `Found: ${this.form(hits)}, ${percent(hits / this.root.value)} of all` : this.describe(top);
    this.said.textContent = thin ? `${said}. Too narrow to be drawn: ${plural(thin, 'module')}; zoom in, or see the table` : said;
    if (focused?.frame?.isConnected) focused.frame.focus({preventScroll: true});
  }

  tell(node) { this.said.textContent = this.describe(node); }

  zoom(node) {
    wantedFlame.path = flamePath(node);
    this.draw(node);
  }

  // Arrow keys: to the frame above, to the first one below, and to those beside it. Escape shows all.
  key(event, node) {
    const beside = step => { const row = inOrder(node.parent ?? node).filter(one => one.frame?.isConnected); return row[row.indexOf(node) + step]; };
    const to = {ArrowUp: () => node.parent, ArrowDown: () => inOrder(node).find(one => one.frame?.isConnected), ArrowLeft: () => beside(-1), ArrowRight: () => beside(1)}[event.key];
    if (event.key === 'Escape') this.zoom(this.root);
    else if (to) {
      const next = to();
      if (next?.frame?.isConnected) { next.frame.tabIndex = 0; node.frame.tabIndex = -1; next.frame.focus(); }
    } else return;
    event.preventDefault();
  }
}

// One row for each module: what it takes with all within it, and itself.
function moduleRows(root, form) {
  const rows = [];
  const walk = node => { if (!node.own) { if (node.parent) rows.push(node); node.children.forEach(walk); } };
  walk(root);
  rows.sort((a, b) => b.value - a.value);
  rows.forEach(node => { node.share = node.self / root.value; });  // what a search adds up
  const of = value => `${form(value)} (${percent(value / root.value)})`;
  return new Rows('modules', [['module', flameName, 'text long', flameName], ['total', node => of(node.value), '', node => node.value],
    ['self', node => of(node.self), '', node => node.self], ['class', node => node.kind, 'text', node => node.kind]], rows, SHOWN_KERNELS, 'Search modules, classes').element;
}

const FLAMES = {
  time: ['GPU time', seconds, told => told.parts.map(part => ({...part, own: part.family, value: part.forward_ns + part.backward_ns}))],
  forward: ['forward', seconds, told => told.parts.map(part => ({...part, own: part.family, value: part.forward_ns}))],
  backward: ['backward', seconds, told => told.parts.map(part => ({...part, own: part.family, value: part.backward_ns}))],
  memory: ['memory at the peak', size, told => (told.memory ?? []).map(part => ({...part, own: part.part, value: part.nbytes}))],
};

function modules(view) {
  const told = view.report.simulated.modules;
  if (!told?.parts?.some(part => part.class)) return null;  // a program without modules
  const trees = Object.entries(FLAMES).map(([key, [title, form, parts]]) => [key, title, form, moduleTree(parts(told))]).filter(([, , , tree]) => tree.value);
  const place = el('div'), buttons = el('div', {class: 'buttons'});
  const show = of => {
    wantedFlame.of = of;
    const [, title, form, tree] = trees.find(([key]) => key === of) ?? trees[0];
    buttons.replaceChildren(...trees.map(([key, name]) => el('button', {type: 'button', 'aria-pressed': key === of, onclick: () => show(key)}, name)));
    place.replaceChildren(new Flame(tree, form, title).element, folded('Modules as a table', () => moduleRows(tree, form)));
  };
  show(trees.some(([key]) => key === wantedFlame.of) ? wantedFlame.of : trees[0][0]);
  return section('modules', 'Modules',
    el('p', {}, `Of the last whole step, the mean of ${plural(told.ranks, 'GPU')}; each kernel as if it were alone. A kernel belongs to the innermost module that is called, and in the backward pass to the module whose forward pass made the node; recomputing counts as backward.`),
    told.left_out ? el('p', {class: 'faint'}, `${plural(told.left_out, 'small part')} of modules are not in the report, so the pictures show less than all.`) : null,
    buttons, place);
}
