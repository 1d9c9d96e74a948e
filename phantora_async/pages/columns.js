// Columns, stacked or one in front of the other: steps, ranks, parts of time. Where there are more than fit, neighbours
// share a column: their mean if stacked, else their largest.

const LEFT = 62, BOTTOM = 22, TOP = 8, WIDEST = 96;

class Columns extends Picture {
  // options: {labels(place), series: [{name, colour, values}], stacked, form(value), axis, most, band: [low, high],
  // lines: [{value, name, colour}], unit: of round steps of the axis, across: {until, form} of an axis below that is no row
  // of names}
  constructor(label, options) {
    super(label, options.height ?? 190);
    this.options = options;
    this.size = options.series[0].values.length;
  }

  each(width) { return Math.max(1, Math.ceil(this.size / Math.max(1, Math.floor((width - LEFT) / 2)))); }
  cells() { return [Math.ceil(this.size / this.each(this.canvas.clientWidth)), 1]; }

  cellAt(x) {
    const width = this.canvas.clientWidth, [columns] = this.cells();
    const column = Math.floor((x - LEFT) / (width - LEFT) * columns);
    return x >= LEFT && column < columns ? [column, 0] : null;
  }

  value(series, column, each) {
    const part = series.values.slice(column * each, (column + 1) * each);
    return this.options.stacked ? part.reduce((sum, value) => sum + value, 0) / part.length : part.reduce((a, b) => Math.max(a, b), 0);
  }

  describe(column) {
    const {labels, series, form, stacked} = this.options, each = this.each(this.canvas.clientWidth);
    const first = column * each, last = Math.min(first + each, this.size) - 1;
    const where = first === last ? labels(first) : `${labels(first)} to ${labels(last)} (${stacked ? 'mean' : 'largest'})`;
    return `${where}: ` + series.map(one => `${one.name ? one.name + ' ' : ''}${form(this.value(one, column, each))}`).join(', ');
  }

  // Round values below columns that are parts of a whole.
  paintAcross(context, width, height, {until, form}) {
    for (const at of ticks(until, Math.max(2, Math.floor((width - LEFT) / 110))).filter(at => at <= until)) {
      const text = at ? tick(form)(at) : '0', half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(LEFT + at / until * (width - LEFT), width - half), height - BOTTOM / 2);
    }
  }

  paint(context, width, height) {
    const {series, stacked, form, lines = [], band, labels, axis} = this.options;
    const each = this.each(width), [columns] = this.cells();
    let most = this.options.most ?? 0;
    if (!this.options.most) {
      for (let place = 0; place < this.size; place++) {
        const values = series.map(one => one.values[place]);
        most = Math.max(most, stacked ? values.reduce((sum, value) => sum + value, 0) : Math.max(...values));
      }
      for (const value of [...lines.map(line => line.value), band?.[1] ?? 0]) most = Math.max(most, value);
    }
    const steps = this.options.most ? [0, most / 4, most / 2, most * 3 / 4, most] : ticks(most, 4, this.options.unit), top = steps.at(-1);
    const y = value => height - BOTTOM - (height - BOTTOM - TOP) * Math.min(value / top, 1);
    const wide = (width - LEFT) / columns, gap = wide > 6 ? Math.max(Math.min(wide * 0.2, 8), this.options.across ? 0 : wide - WIDEST) : wide > 3 ? 1 : 0;
    context.fillStyle = colour('--faint');
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (const step of steps) {
      context.fillText(step ? (axis ?? tick(form))(step) : '0', LEFT - 6, y(step));
      context.fillRect(LEFT, y(step), width - LEFT, 0.35);
    }
    if (band) {
      context.globalAlpha = 0.14;
      context.fillStyle = colour('--accent');
      context.fillRect(LEFT, y(band[1]), width - LEFT, y(band[0]) - y(band[1]));
      context.globalAlpha = 1;
    }
    for (let column = 0; column < columns; column++) {
      let base = 0;
      for (const one of series) {
        const value = this.value(one, column, each), from = stacked ? base : 0;
        context.fillStyle = colour(one.colourOf?.(column * each) ?? one.colour);
        context.fillRect(LEFT + column * wide + gap / 2, y(from + value), Math.max(wide - gap, 0.8), y(from) - y(from + value));
        base += value;
      }
    }
    for (const line of lines) {
      context.strokeStyle = context.fillStyle = colour(line.colour);
      context.setLineDash([5, 4]);
      context.beginPath();
      context.moveTo(LEFT, y(line.value));
      context.lineTo(width, y(line.value));
      context.stroke();
      context.setLineDash([]);
    }
    if (this.cursor) {
      context.strokeStyle = colour('--text');
      context.strokeRect(LEFT + this.cursor[0] * wide + 0.5, TOP - 4, Math.max(wide - 1, 1), height - BOTTOM - TOP + 4);
    }
    context.fillStyle = colour('--faint');
    context.textAlign = 'center';
    if (this.options.across) return this.paintAcross(context, width, height, this.options.across);
    const fitting = Math.max(1, Math.floor((width - LEFT) / 90)), apart = 2 ** Math.max(0, Math.ceil(Math.log2(columns / fitting)));
    for (let column = 0; column < columns; column += apart) {
      const text = labels(column * each), half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(LEFT + (column + 0.5) * wide, width - half), height - BOTTOM / 2);
    }
  }
}
