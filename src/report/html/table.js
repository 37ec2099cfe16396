// The table of all rows: sorted by any column, searched, each row opens.

// A column: `valueOf` is what sorts, `text` what is shown, `look(row)` the class of a cell, if any. The table is
// first sorted by the column with `sortsFirst`, if there is one.
const rowFigure = (title, hint, valueOf, text) => ({title, hint, valueOf, text: (row) => orDash(valueOf(row), text), figure: true});
const rowWords = (title, hint, valueOf) => ({title, hint, valueOf, text: (row) => String(valueOf(row) ?? DASH)});

// What the case of a row is; an axis that most results have at one value only where rows differ in it.
function caseColumns(rows, axes) {
  const others = axes.filter((name) => !AXES_SHOWN.has(name) && distinct(rows, (row) => row[name] ?? DASH) > 1);
  return [
    rowWords('pass', '', (row) => row.pass),
    rowWords('dtype', '', (row) => row.dtype),
    rowWords('mask', '', (row) => row.mask),
    rowFigure('batch', '', (row) => row.batch, String),
    {...rowFigure('heads', 'Query heads, or query heads/K and V heads', (row) => row.q_heads, String), text: headsText},
    rowFigure('q_len', '', (row) => row.q_len, String),
    rowFigure('kv_len', '', (row) => row.kv_len, String),
    rowFigure('d', 'head_dim', (row) => row.head_dim, String),
    ...others.map((name) => rowWords(name, '', (row) => row[name])),
  ];
}

function cellLook(column, row) {
  return [column.figure && 'figure', column.wide && 'reason', column.look && column.look(row)].filter(Boolean).join(' ') || null;
}

// A row of the table, and the one below it that shows `detailsOf(row)` while it is open.
class TableRow {
  constructor(row, columns, detailsOf) {
    this.row = row;
    this.detailsOf = detailsOf;
    this.cells = columns.map((column) => column.text(row));
    this.searched = [row.provider, row.case, row.kernel, row.file, row.reason, row.notes, ...this.cells].join(' ').toLowerCase();
    this.button = element('button', {type: 'button', class: 'open', 'aria-expanded': 'false', onclick: () => this.toggle()}, row.provider);
    this.node = element('tr', {}, element('th', {scope: 'row'}, this.button),
      columns.map((column, i) => element('td', {class: cellLook(column, row)}, this.cells[i])));
    this.details = null;
  }

  nodes() {
    return this.details ? [this.node, this.details] : [this.node];
  }

  toggle(open = !this.details) {
    if (open === Boolean(this.details)) return;
    this.button.setAttribute('aria-expanded', String(open));
    if (open) {
      this.details = element('tr', {class: 'details', id: `row-${this.row.id}`},
        element('td', {colspan: String(this.node.children.length)}, element('div', {class: 'row-details'}, this.detailsOf(this.row))));
      this.button.setAttribute('aria-controls', this.details.id);
      this.node.after(this.details);
    } else {
      this.details.remove();
      this.details = null;
      this.button.removeAttribute('aria-controls');
    }
  }
}

// Absent figures come last in either order.
function comparison(valueOf, descending) {
  const absent = (value) => value === null || value === undefined;
  return (a, b) => {
    const left = valueOf(a.row), right = valueOf(b.row);
    if (absent(left) || absent(right)) return absent(left) - absent(right);
    const order = isFigure(left) && isFigure(right) ? left - right : String(left).localeCompare(String(right));
    return descending ? -order : order;
  };
}

let tableRows = [];

// Opens the row in the table and goes there.
function showRow(row) {
  const tableRow = tableRows[row.id];
  if (tableRow.node.hidden) return;
  tableRow.toggle(true);
  tableRow.node.scrollIntoView({block: 'center'});
  tableRow.button.focus({preventScroll: true});
}

// Returns `show(keeps)`, which leaves the rows that are kept and that the search finds.
function makeTable(rows, columns, detailsOf) {
  const body = byId('table').tBodies[0];
  tableRows = rows.map((row) => new TableRow(row, columns, detailsOf));
  const headings = [{title: 'provider', valueOf: (row) => row.provider, hint: ''}, ...columns].map((column) => {
    const heading = element('th', {scope: 'col', class: column.figure && 'figure', 'aria-sort': 'none'},
      element('button', {type: 'button', title: column.hint || null, onclick: () => sortBy(column, heading)}, column.title));
    return heading;
  });
  byId('table').tHead.append(element('tr', {}, headings));

  const sortBy = (column, heading) => {
    const descending = heading.getAttribute('aria-sort') === 'ascending';
    for (const other of headings) other.setAttribute('aria-sort', 'none');
    heading.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
    const sorted = [...tableRows].sort(comparison(column.valueOf, descending));
    body.replaceChildren(...sorted.flatMap((row) => row.nodes()));
  };
  body.append(...tableRows.flatMap((row) => row.nodes()));
  const first = columns.findIndex((column) => column.sortsFirst);
  if (first >= 0) sortBy(columns[first], headings[first + 1]);

  let kept = () => true;
  const show = (keeps = kept) => {
    kept = keeps;
    const words = byId('search').value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of tableRows) {
      const visible = keeps(row.row) && words.every((word) => row.searched.includes(word));
      if (!visible) row.toggle(false);
      row.node.hidden = !visible;
      shown += visible ? 1 : 0;
    }
    byId('row-count').textContent = `${shown} of ${rows.length} rows`;
  };
  byId('search').addEventListener('input', () => show());
  return show;
}
