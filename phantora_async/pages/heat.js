// Rows over virtual time, one cell for each part of it: ranks and what they did, links and how busy they were.

const LEVELS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
const LEVEL_OF = new Map([...LEVELS].map((character, place) => [character, place / (LEVELS.length - 1)]));
const shareAt = (text, part) => LEVEL_OF.get(text[part]) ?? 0;
const LABELS = 130, AXIS = 20;

const chosen = new Map();  // by the picture's id: the part of the run that the user has chosen

class Heat extends Picture {
  // options: {id, rows: [{label, describe(part)}], parts, part_ns, until_ns, paintCell(row, part) -> [red, green, blue], or in place of
  // it shares(row, part) and colours(): of each share one and of what is left, from below to above,
  // marks: instants of step ends, from_ns, to_ns: what is shown first}
  constructor(label, options) {
    const rowHeight = Math.max(3, Math.min(options.shares ? 36 : 26, Math.floor(420 / options.rows.length)));
    super(label, options.rows.length * rowHeight + AXIS);
    this.options = options;
    this.rowHeight = rowHeight;
    this.show(...chosen.get(options.id) ?? [options.from_ns ?? 0, options.to_ns ?? options.until_ns], false);
    this.element.prepend(this.buttons());
    this.canvas.addEventListener('dblclick', event => {
      const cell = this.cellAt(event.offsetX, event.offsetY);
      if (cell) this.zoom(0.4, cell[0]);
    });
  }

  buttons() {
    const shift = by => () => this.show(this.from_ns + by * (this.to_ns - this.from_ns), this.to_ns + by * (this.to_ns - this.from_ns));
    const button = (text, name, act) => el('button', {type: 'button', 'aria-label': name, title: name, onclick: act}, text);
    const {marks = [], until_ns} = this.options, all = [
      button('whole run', 'show the whole run', () => { this.show(0, until_ns); chosen.delete(this.options.id); }),
      button('+', 'zoom in', () => this.zoom(0.5)),
      button('−', 'zoom out', () => this.zoom(2)),
      button('◀', 'earlier', shift(-0.5)),
      button('▶', 'later', shift(0.5)),
    ];
    if (marks.length > 1)
      all.splice(1, 0, button('last step', 'show the last step', () => this.show(marks.at(-2), marks.at(-1))));
    return el('div', {class: 'buttons'}, all);
  }

  show(from_ns, to_ns, draw = true) {
    const {part_ns, until_ns} = this.options, wide = Math.max(Math.min(to_ns - from_ns, until_ns), Math.min(4 * part_ns, until_ns), 1);
    this.from_ns = Math.max(0, Math.min(from_ns, until_ns - wide));
    this.to_ns = this.from_ns + wide;
    if (!draw) return;
    chosen.set(this.options.id, [this.from_ns, this.to_ns]);
    this.draw();
  }

  zoom(by, part = this.cursor?.[0]) {
    const {part_ns} = this.options, wide = (this.to_ns - this.from_ns) * by;
    const middle = part === undefined ? (this.from_ns + this.to_ns) / 2 : (part + 0.5) * part_ns;
    this.show(middle - wide / 2, middle + wide / 2);
  }

  other(key) {
    if (key === '+' || key === '=') this.zoom(0.5);
    else if (key === '-') this.zoom(2);
    else return false;
    return true;
  }

  labelWidth() { return Math.min(LABELS, this.canvas.clientWidth * 0.3); }
  cells() { return [this.options.parts, this.options.rows.length]; }

  cellAt(x, y) {
    const left = this.labelWidth(), row = Math.floor(y / this.rowHeight);
    const at_ns = this.from_ns + (x - left) / (this.canvas.clientWidth - left) * (this.to_ns - this.from_ns);
    const part = Math.floor(at_ns / this.options.part_ns);
    return x >= left && row < this.options.rows.length && part >= 0 && part < this.options.parts ? [part, row] : null;
  }

  describe(part, row) {
    const {rows, part_ns, until_ns} = this.options;
    const until = seconds(Math.min((part + 1) * part_ns, until_ns));
    return `${rows[row].label}, ${seconds(part * part_ns)} to ${until}: ${rows[row].describe(part)}`;
  }

  move(cell) {
    if (cell) {
      const {part_ns} = this.options, at_ns = cell[0] * part_ns, wide = this.to_ns - this.from_ns;
      if (at_ns + part_ns < this.from_ns || at_ns > this.to_ns) this.show(at_ns - wide / 2, at_ns + wide / 2, false);
    }
    super.move(cell);
  }

  recolour() {
    this.image = undefined;
    this.draw();
  }

  // One pixel for each cell, or a column of them that has each share's colour. Made once for each set of colours, and
  // again if another number of parts shares a column of the screen.
  made(each) {
    if (this.image && this.image.each === each) return this.image;
    const {rows, parts, paintCell, shares} = this.options, high = shares ? this.cellHeight() : 1;
    const image = document.createElement('canvas'), colours = this.options.colours?.();
    image.each = each;
    image.width = Math.max(Math.ceil(parts / each), 1);
    image.height = rows.length * high;
    const context = image.getContext('2d'), pixels = context.createImageData(image.width, image.height);
    rows.forEach((row, place) => {
      for (let column = 0; column < image.width && parts; column++) {
        const stack = shares ? this.stack(row, column * each, Math.min(each, parts - column * each)) : null;
        for (let line = 0; line < high; line++) {
          const painted = stack ? colours[stack.findIndex(upTo => (high - line - 0.5) / high <= upTo)] : paintCell(row, column);
          pixels.data.set([...painted, 255], 4 * ((place * high + line) * image.width + column));
        }
      }
    });
    context.putImageData(pixels, 0, 0);
    return this.image = image;
  }

  // Where each share of a column ends, from 0 to 1: the mean of its parts.
  stack(row, first, parts) {
    const sums = [];
    for (let part = first; part < first + parts; part++)
      this.options.shares(row, part).forEach((share, place) => { sums[place] = (sums[place] ?? 0) + share; });
    const sum = sums.reduce((a, b) => a + b, 0), all = sum > 0.95 * parts ? sum : parts, ends = [];  // shares are rounded
    let end = 0;
    for (const one of sums) ends.push(end += one / all);
    return [...ends, Infinity];
  }

  cellHeight() { return this.rowHeight - (this.rowHeight > 6 ? 1 : 0); }

  paint(context, width, height) {
    const {rows, part_ns, parts, marks = []} = this.options, left = this.labelWidth(), wide_ns = this.to_ns - this.from_ns;
    const x = at_ns => left + (at_ns - this.from_ns) / wide_ns * (width - left);
    const bottom = height - AXIS, stacked = Boolean(this.options.shares), shown = wide_ns / part_ns;
    const each = stacked ? Math.max(1, Math.ceil(shown / (width - left))) : 1, column_ns = each * part_ns, image = this.made(each);
    const columns = Math.ceil(parts / each), cell = this.cellHeight(), high = stacked ? cell : 1;
    const first = Math.max(0, Math.floor(this.from_ns / column_ns)), last = Math.min(columns, Math.ceil(this.to_ns / column_ns));
    context.save();
    context.beginPath();
    context.rect(left, 0, width - left, bottom);
    context.clip();
    context.imageSmoothingEnabled = !stacked && last - first > width - left;
    context.imageSmoothingQuality = 'high';
    for (let row = 0; row < rows.length; row++)
      context.drawImage(image, first, row * high, Math.max(last - first, 1), high, x(first * column_ns), row * this.rowHeight,
        x(last * column_ns) - x(first * column_ns), cell);
    context.fillStyle = colour('--text');
    const marked = marks.filter(at_ns => at_ns >= this.from_ns && at_ns <= this.to_ns);
    if (marked.length < 100) for (const at_ns of marked) context.fillRect(x(at_ns) - 0.5, 0, 1, bottom);
    if (this.cursor) {
      const [part, row] = this.cursor;
      context.strokeStyle = colour('--text');
      context.lineWidth = 1.5;
      context.strokeRect(x(part * part_ns) - 1, row * this.rowHeight, Math.max(x((part + 1) * part_ns) - x(part * part_ns), 1) + 2, this.rowHeight - 1);
    }
    context.restore();
    this.paintLabels(context, left, width, height, x);
  }

  paintLabels(context, left, width, height, x) {
    const {rows} = this.options, every = Math.max(1, Math.ceil(14 / this.rowHeight));
    context.fillStyle = colour('--faint');
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    for (let row = 0; row < rows.length; row += every)
      context.fillText(visible(rows[row].label), left - 6, (row + 0.5) * this.rowHeight, left - 8);
    context.textBaseline = 'alphabetic';
    context.textAlign = 'center';
    const wide_ns = this.to_ns - this.from_ns, step = ticks(wide_ns, Math.max(2, Math.floor((width - left) / 110)))[1];
    for (let at_ns = Math.ceil(this.from_ns / step) * step; at_ns <= this.to_ns; at_ns += step) {
      const text = at_ns ? tick(seconds)(at_ns) : '0', half = context.measureText(text).width / 2;
      context.fillRect(x(at_ns), height - AXIS, 1, 4);
      context.fillText(text, Math.max(left + half, Math.min(x(at_ns), width - half)), height - 4);
    }
  }
}
