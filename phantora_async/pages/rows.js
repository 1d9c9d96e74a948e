// A table whose rows can be sorted by its heads and, if it has many, searched. On a narrow page each row has its name above
// its figures.

const wantedRows = new Map();  // by the table's id: the text, the column and the order that the user has chosen, and whether all rows are shown

class Rows {
  // columns: [title, form(row), kind, key(row)]; the first one is the name. most: the rows that are shown until all are
  // asked for. search: the name of the field for text, if there is one.
  constructor(id, columns, rows, most, search) {
    Object.assign(this, {id, columns, rows, most});
    this.wanted = wantedRows.get(id) ?? {text: '', column: null, falling: true, all: false};
    wantedRows.set(id, this.wanted);
    this.body = el('tbody');
    this.heads = columns.map(([title, , kind], column) =>
      el('th', {class: kind, scope: 'col'}, el('button', {type: 'button', class: 'sort', onclick: () => this.sort(column)}, title)));
    this.more = el('button', {type: 'button', onclick: () => { this.wanted.all = !this.wanted.all; this.show(); }});
    this.said = el('output', {'aria-live': 'polite'});
    const field = search && rows.length > 5 ? el('input', {type: 'search', placeholder: search, 'aria-label': search, value: this.wanted.text,
      oninput: event => { this.wanted.text = event.target.value; this.show(); }}) : null;
    this.element = el('div', {class: 'rows', id: `rows-${id}`}, field,
      el('div', {class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'table'}, el('table', {class: 'named'}, el('thead', {}, el('tr', {}, this.heads)), this.body)),
      el('div', {class: 'buttons'}, this.more), search ? this.said : null);
    this.show();
  }

  // Figures fall first, names rise first; the same head again turns the order.
  sort(column) {
    const text = typeof this.columns[column][3](this.rows[0]) === 'string';
    this.wanted.falling = this.wanted.column === column ? !this.wanted.falling : !text;
    this.wanted.column = column;
    this.show();
  }

  found() {
    const {text, column, falling} = this.wanted, words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const texts = this.columns.filter(([, , kind]) => kind?.startsWith('text')).map(([, , , key]) => key);
    const found = this.rows.filter(row => words.every(word => texts.some(key => String(key(row)).toLowerCase().includes(word))));
    if (column === null) return found;
    const key = this.columns[column][3];
    return found.sort((a, b) => (falling ? -1 : 1) * (typeof key(a) === 'string' ? key(a).localeCompare(key(b)) : key(a) - key(b)));
  }

  show() {
    const found = this.found(), shown = this.wanted.all ? found : found.slice(0, this.most);
    this.heads.forEach((head, column) =>
      head.setAttribute('aria-sort', this.wanted.column !== column ? 'none' : this.wanted.falling ? 'descending' : 'ascending'));
    this.body.replaceChildren(...shown.map(row => el('tr', {}, this.columns.map(([title, form, kind]) => el('td', {class: kind, 'data-title': title}, form(row))))));
    this.more.hidden = found.length <= this.most;
    this.more.textContent = this.wanted.all ? `Only the first ${this.most}` : `All ${count(found.length)}`;
    const share = found.reduce((sum, row) => sum + (row.share ?? 0), 0);
    this.said.textContent = this.wanted.text ? `${count(found.length)} of ${count(this.rows.length)}, ${percent(share)} of the time` : '';
  }
}
