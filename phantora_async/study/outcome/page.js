'use strict';
const filters = document.getElementById('filters');
const body = document.querySelector('#table tbody');
const rows = [...body.rows];
const points = [...document.querySelectorAll('.point[data-row]')];

function wanted(row) {
  for (const select of filters.querySelectorAll('select')) {
    const chosen = JSON.parse(row.dataset.chosen);
    if (select.value !== '' && chosen[select.dataset.key] !== select.value) return false;
  }
  if (document.getElementById('only-front').checked && !row.classList.contains('front')) return false;
  if (document.getElementById('only-fit').checked && row.classList.contains('unfit')) return false;
  return row.textContent.toLowerCase().includes(document.getElementById('text').value.trim().toLowerCase());
}

function show() {
  let shown = 0;
  for (const row of rows) {
    row.hidden = !wanted(row);
    shown += row.hidden ? 0 : 1;
    for (const point of points) if (point.dataset.row === row.id) point.classList.toggle('gone', row.hidden);
  }
  for (const point of points) point.style.display = point.classList.contains('gone') ? 'none' : '';
  document.getElementById('count').textContent = `${shown} of ${rows.length} trials`;
}

function sort(heading) {
  const falling = heading.getAttribute('aria-sort') === 'ascending';
  for (const other of document.querySelectorAll('#table thead th')) other.removeAttribute('aria-sort');
  heading.setAttribute('aria-sort', falling ? 'descending' : 'ascending');
  const title = heading.textContent;
  // A trial without figures has one cell in the place of theirs.
  const key = (row) => [...row.cells].find((cell) => cell.dataset.title === title)?.dataset.value ?? '';
  const numeric = rows.every((row) => key(row) === '' || !Number.isNaN(Number(key(row))));
  rows.sort((one, other) => {
    const [a, b] = [key(one), key(other)];
    if (a === '' || b === '') return (a === '') - (b === '');
    const order = numeric ? Number(a) - Number(b) : a.localeCompare(b);
    return falling ? -order : order;
  });
  body.append(...rows);
}

document.querySelectorAll('#table thead th').forEach((heading) => {
  const button = document.createElement('button');
  button.type = 'button';
  button.append(...heading.childNodes);
  heading.append(button);
  button.addEventListener('click', () => sort(heading));
});
filters.addEventListener('input', show);
filters.addEventListener('submit', (event) => event.preventDefault());
filters.addEventListener('reset', () => setTimeout(show));
filters.hidden = false;
show();
