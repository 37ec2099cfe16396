// Checkboxes that choose rows, for the charts and the table alike.

const SHAPES = ['square', 'circle', 'triangle-up', 'diamond', 'triangle-down', 'cross'];
const SHAPE_SIGNS = ['■', '●', '▲', '◆', '▼', '✚'];

// Colour and shape of each line. As many pairs as there are of both come before one comes again.
function lineStyles(rows) {
  const colours = pageColour('--series').split(/\s+/);
  const styles = new Map();
  for (const [line] of grouped(rows, (row) => row.line)) {
    const number = styles.size;
    const shape = (number + Math.floor(number / colours.length)) % SHAPES.length;
    styles.set(line, {colour: colours[number % colours.length], shape: SHAPES[shape], sign: SHAPE_SIGNS[shape]});
  }
  return styles;
}

const CASE_FILTERS = [
  {title: 'Pass', valueOf: (row) => row.pass},
  {title: 'Type', valueOf: (row) => row.dtype},
  {title: 'Mask', valueOf: (row) => row.mask, text: maskText},
  {title: 'head_dim', valueOf: (row) => row.head_dim},
];

// A filter has a title and `valueOf(row)`, and may have all values in order, `values`; `text(value)` is what is shown of it, and `swatch(value)`, {sign, colour}, the
// mark that its rows have in the charts.
class Filters {
  // Fills the form; `changed` is called after each change.
  constructor(form, rows, filters, changed) {
    this.form = form;
    this.filters = filters;
    this.hidden = filters.map(() => new Set());
    this.changed = changed;
    filters.forEach((filter, index) => this.add(filter, index, rows));
    form.append(element('button', {type: 'button', onclick: () => this.set(() => true)}, 'Show all'));
    form.addEventListener('submit', (event) => event.preventDefault());
    this.paint();
  }

  add(filter, index, rows) {
    const values = grouped(rows, filter.valueOf).map(([value]) => value);
    if (values.length < 2) return;
    if (filter.values) values.sort((a, b) => filter.values.indexOf(a) - filter.values.indexOf(b));
    else if (values.every(isFigure)) values.sort((a, b) => a - b);
    this.form.append(element('fieldset', {}, element('legend', {}, filter.title), values.map((value) => {
      const box = element('input', {type: 'checkbox', checked: true, onchange: () => {
        if (box.checked) this.hidden[index].delete(value);
        else this.hidden[index].add(value);
        this.changed();
      }});
      box.choice = {filter, index, value};
      const swatch = filter.swatch && element('span', {class: 'swatch', 'aria-hidden': 'true'}, filter.swatch(value).sign);
      return element('label', {}, box, swatch, filter.text ? filter.text(value) : String(value));
    })));
  }

  // Checks the boxes for which the test of (filter, value) holds, and no others.
  set(isChecked) {
    for (const box of this.form.querySelectorAll('input')) {
      const {filter, index, value} = box.choice;
      box.checked = isChecked(filter, value);
      if (box.checked) this.hidden[index].delete(value);
      else this.hidden[index].add(value);
    }
    this.changed();
  }

  // The test that a row must pass.
  keeps(row) {
    return this.filters.every((filter, index) => !this.hidden[index].has(filter.valueOf(row)));
  }

  // In the colours of now.
  paint() {
    for (const swatch of this.form.querySelectorAll('.swatch')) {
      const {filter, value} = swatch.parentNode.querySelector('input').choice;
      swatch.style.color = filter.swatch(value).colour;
    }
  }
}

// Shows in the charts and the table what the filters keep. `show(keeps)` as makeCharts and makeTable return it. Returns
// the filters.
function makeFilters(rows, filters, showTable, showCharts) {
  const show = () => {
    showTable(keeps);
    showCharts(keeps);
  };
  const chosen = new Filters(byId('filters'), rows, filters, show);
  const keeps = (row) => chosen.keeps(row);
  show();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    chosen.paint();
    showCharts();
  });
  return chosen;
}
