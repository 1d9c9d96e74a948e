// How figures are written, and how elements are made. Texts become text nodes: nothing here reads HTML.

function seconds(ns) {
  if (ns >= 1e9) return (ns / 1e9).toFixed(3) + ' s';
  if (ns >= 1e6) return (ns / 1e6).toFixed(ns < 1e8 ? 2 : 1) + ' ms';
  return (ns / 1e3).toFixed(1) + ' µs';
}

// A tick of an axis: round steps need no zeros behind the point.
const tick = form => value => form(value).replace(/(\.\d*?)0+(?= )/, '$1').replace(/\.(?= )/, '');

function clock(s) {
  const whole = Math.round(s), h = Math.floor(whole / 3600), m = Math.floor(whole / 60) % 60;
  const two = number => String(number).padStart(2, '0');
  return h ? `${h} h ${two(m)} min` : m ? `${m} min ${two(whole % 60)} s` : `${whole} s`;
}

// In the largest unit of which there is one.
function size(nbytes) {
  if (nbytes >= 2 ** 30) return (nbytes / 2 ** 30).toFixed(2) + ' GiB';
  if (nbytes >= 2 ** 20) return (nbytes / 2 ** 20).toFixed(1) + ' MiB';
  return nbytes >= 1024 ? (nbytes / 1024).toFixed(1) + ' KiB' : Math.round(nbytes) + ' B';
}

const peak = nbytes => nbytes ? size(nbytes) : '-';
const percent = (share, digits = 1) => (100 * share).toFixed(digits) + '%';
const count = number => Number(number).toLocaleString('en-US');
const plural = (number, word) => `${count(number)} ${word}${number === 1 ? '' : 's'}`;

function bytes(nbytes) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  const place = nbytes < 1 ? 0 : Math.min(Math.floor(Math.log10(nbytes) / 3), units.length - 1);
  return (nbytes / 1000 ** place).toPrecision(3) + ' ' + units[place];
}

// "0-7,16", and "0-56:8" where ranks differ by equal steps.
function compact(ranks) {
  const step = ranks.length > 2 ? ranks[1] - ranks[0] : 1;
  if (step > 1 && ranks.every((rank, place) => rank === ranks[0] + place * step))
    return `${ranks[0]}-${ranks.at(-1)}:${step}`;
  const parts = [];
  for (let start = 0, place = 0; place < ranks.length; place++) {
    if (ranks[place + 1] !== ranks[place] + 1) {
      parts.push(start === place ? `${ranks[start]}` : `${ranks[start]}-${ranks[place]}`);
      start = place + 1;
    }
  }
  return parts.join(',');
}

const named = ranks => `rank${ranks.length === 1 ? '' : 's'} ${compact(ranks)}`;

// Control characters and what reverses or hides text are shown as escapes, as on a terminal.
const HIDDEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const visible = text => String(text).replace(HIDDEN, found => '\\u' + found.charCodeAt(0).toString(16).padStart(4, '0'));

// el('p', {class: 'faint'}, 'text', el(...)): children that are no elements become text.
function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (key === 'style') for (const [property, set] of Object.entries(value)) made.style[property] = set;
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    made.append(child instanceof Node ? child : visible(child));
  }
  return made;
}

// columns: [title, form(row), 'text' for a column of text]; a form may return an element. On a phone each figure has its
// title in front of it.
function table(columns, rows) {
  const head = columns.map(([title, , kind]) => el('th', {class: kind, scope: 'col'}, title));
  const cells = row => columns.map(([title, form, kind]) => el('td', {class: kind, 'data-title': title}, form(row)));
  const made = el('table', {class: 'named plain'}, el('thead', {}, el('tr', {}, head)), el('tbody', {}, rows.map(row => el('tr', {}, cells(row)))));
  return el('div', {class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'table'}, made);
}

// A table that is made when it is opened.
function folded(title, make) {
  const made = el('details', {}, el('summary', {}, title));
  made.addEventListener('toggle', () => { if (made.open && made.childElementCount === 1) made.append(make()); });
  return made;
}

function facts(pairs) {
  return el('dl', {class: 'facts'}, pairs.filter(([, value]) => value !== '' && value !== null && value !== undefined)
    .map(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));
}

// items: [name, colour, kind]; kind: nothing for a filled square, 'band' for a pale area, 'dashed' for a line.
function legend(items) {
  const mark = (colour, kind) => kind === 'dashed' ? {borderTop: `2px dashed var(${colour})`} : {background: `var(${colour})`};
  return el('ul', {class: 'legend'}, items.map(([name, colour, kind]) =>
    el('li', {}, el('i', {class: kind, style: mark(colour, kind), 'aria-hidden': 'true'}), name)));
}
