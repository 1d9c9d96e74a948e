// A picture on a canvas: drawn again when its size or the colours change; pointer and arrow keys move a cursor, and the
// line below says what is there.

const pictures = new Set();

class Picture {
  // label: what a reader who does not see it should know. height: of the canvas. cells(): [columns, rows] for the cursor.
  constructor(label, height) {
    this.label = label;
    this.height = height;
    this.cursor = null;
    this.canvas = el('canvas', {tabindex: 0, role: 'img', 'aria-label': label});
    this.readout = el('output', {'aria-live': 'polite'});
    this.element = el('figure', {class: 'picture'}, this.canvas, this.readout);
    this.canvas.addEventListener('pointermove', event => this.point(event));
    this.canvas.addEventListener('pointerdown', event => this.point(event));
    this.canvas.addEventListener('pointerleave', () => this.move(null));
    this.canvas.addEventListener('keydown', event => this.key(event));
    this.canvas.addEventListener('blur', () => this.move(null));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    pictures.add(this);
  }

  // ---- for the kinds of picture ------------------------------------------------------------------------------------

  cells() { return [0, 0]; }
  cellAt(x, y) { return null; }
  describe(column, row) { return ''; }
  paint(context, width, height) {}
  other(key) { return false; }

  // ---- the rest ----------------------------------------------------------------------------------------------------

  draw() {
    const width = this.canvas.clientWidth, scale = window.devicePixelRatio || 1;
    if (!width) return;
    this.canvas.style.height = this.height + 'px';
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(this.height * scale);
    const context = this.canvas.getContext('2d');
    context.scale(scale, scale);
    context.font = '12px system-ui, sans-serif';
    this.paint(context, width, this.height);
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    this.move(this.cellAt(event.clientX - box.left, event.clientY - box.top));
  }

  move(cell) {
    if (String(cell) === String(this.cursor)) return;
    this.cursor = cell;
    this.readout.textContent = cell ? visible(this.describe(...cell)) : '';
    this.draw();
  }

  key(event) {
    const [columns, rows] = this.cells();
    if (!columns || event.ctrlKey || event.metaKey || event.altKey) return;
    const [column, row] = this.cursor ?? [-1, 0];
    const far = event.shiftKey ? 10 : 1;
    const to = {
      ArrowLeft: [column - far, row], ArrowRight: [column + far, row], ArrowUp: [column, row - far],
      ArrowDown: [column, row + far], Home: [0, row], End: [columns - 1, row],
    }[event.key];
    const clamp = (value, most) => Math.max(0, Math.min(value, most - 1));
    if (to) this.move([clamp(to[0], columns), clamp(to[1], rows)]);
    else if (event.key === 'Escape') this.move(null);
    else if (!this.other(event.key)) return;
    event.preventDefault();
  }
}

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rgb = hex => [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16));

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  for (const picture of pictures) picture.recolour ? picture.recolour() : picture.draw();
});

function forget(element) {
  for (const picture of pictures) if (element.contains(picture.element)) pictures.delete(picture);
}

// Up to about `most` round steps from 0 to the value or beyond; round in this unit.
function ticks(value, most, unit = 1) {
  if (unit !== 1) return ticks(value / unit, most).map(step => step * unit);
  if (!(value > 0)) return [0, 1];
  const rough = value / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map(times => times * power).find(step => step >= rough);
  return Array.from({length: Math.ceil(value / step - 1e-9) + 1}, (_, place) => place * step);
}
