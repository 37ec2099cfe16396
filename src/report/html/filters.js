// Checkboxes that choose rows, for the charts and the table alike.

const SHAPES = ['square', 'circle', 'triangle-up', 'diamond', 'triangle-down', 'cross'];
const SHAPE_SIGNS = ['■', '●', '▲', '◆', '▼', '✚'];

// Colour and shape of each line. As many pairs as there are of both come before one comes again.
function lineStyles(rows) {
  const colours = getComputedStyle(document.documentElement).getPropertyValue('--series').trim().split(/\s+/);
  const styles = new Map();
  for (const [line] of grouped(rows, (row) => row.line)) {
    const number = styles.size;
    const shape = (number + Math.floor(number / colours.length)) % SHAPES.length;
    styles.set(line, {colour: colours[number % colours.length], shape: SHAPES[shape], sign: SHAPE_SIGNS[shape]});
  }
  return styles;
}

const FILTERS = [
  {title: 'Provider', valueOf: (row) => row.line},
  {title: 'File', valueOf: (row) => row.file},
  {title: 'Pass', valueOf: (row) => row.pass},
  {title: 'Type', valueOf: (row) => row.dtype},
  {title: 'Mask', valueOf: (row) => row.mask, text: maskText},
  {title: 'head_dim', valueOf: (row) => row.head_dim},
  {title: 'Status', valueOf: (row) => row.status},
  {title: 'Verdict', valueOf: (row) => row.verified},
];

// Fills the form; `changed` is called after each change. Returns the test that a row must pass.
function makeFilters(form, rows, changed) {
  const hidden = FILTERS.map(() => new Set());
  const styles = lineStyles(rows);
  FILTERS.forEach((filter, index) => {
    const values = grouped(rows, filter.valueOf).map(([value]) => value);
    if (values.length < 2) return;
    if (values.every(isFigure)) values.sort((a, b) => a - b);
    form.append(element('fieldset', {}, element('legend', {}, filter.title), values.map((value) => {
      const box = element('input', {type: 'checkbox', checked: true, onchange: () => {
        if (box.checked) hidden[index].delete(value);
        else hidden[index].add(value);
        changed();
      }});
      const swatch = index === 0 && element('span', {class: 'swatch', 'data-line': value, 'aria-hidden': 'true'},
        styles.get(value).sign);
      return element('label', {}, box, swatch, filter.text ? filter.text(value) : String(value));
    })));
  });
  form.append(element('button', {type: 'button', onclick: () => {
    for (const set of hidden) set.clear();
    for (const box of form.querySelectorAll('input')) box.checked = true;
    changed();
  }}, 'Show all'));
  form.addEventListener('submit', (event) => event.preventDefault());
  paintSwatches(form, styles);
  return (row) => FILTERS.every((filter, index) => !hidden[index].has(filter.valueOf(row)));
}

function paintSwatches(form, styles) {
  for (const swatch of form.querySelectorAll('.swatch')) {
    swatch.style.color = styles.get(swatch.dataset.line).colour;
  }
}
