// Panels of charts, and what a pointer over a point shows.

// How Vega draws, in the colours of the page.
function chartConfig() {
  const muted = pageColour('--muted');
  return {
    background: 'transparent',
    font: 'system-ui, sans-serif',
    view: {stroke: null},
    axis: {labelColor: pageColour('--text'), titleColor: muted, gridColor: pageColour('--line'), domainColor: muted,
           tickColor: muted, titleFontWeight: 'normal', labelFontSize: 11, titleFontSize: 11},
  };
}

// Draws the layers into the element, as wide as it. Points that have the `id` of one of the rows say `tell(row)` under
// the pointer, and open the row. Returns a promise of the view.
function drawChart(container, {layer, height, description}, rows = [], tell = null) {
  const compiled = vegaLite.compile({
    width: 'container', height, description, autosize: {type: 'fit', contains: 'padding'}, layer, config: chartConfig(),
  });
  const view = new vega.View(vega.parse(compiled.spec), {renderer: 'svg', container, hover: true});
  view.tooltip((_, event, item, id) => showTooltip(event, rows[id], tell));
  view.addEventListener('click', (_, item) => {
    if (item && item.datum && rows[item.datum.id]) showRow(rows[item.datum.id]);
  });
  return view.runAsync();
}

// ---- the tooltip

function showTooltip(event, row, tell) {
  const tooltip = byId('tooltip');
  tooltip.hidden = !row;
  if (!row) return;
  tooltip.replaceChildren(element('b', {}, row.line), ...tell(row).map((line) => element('div', {}, line)));
  const {width, height} = tooltip.getBoundingClientRect();
  const beside = (at, size, room) => Math.max(4, at + 14 + size > room ? at - 14 - size : at + 14);
  tooltip.style.left = `${beside(event.clientX, width, innerWidth)}px`;
  tooltip.style.top = `${beside(event.clientY, height, innerHeight)}px`;
}

// ---- panels

// Axes that every chart and table shows, a chart not by the words above a panel.
const AXES_SHOWN = new Set(['pass', 'dtype', 'mask', 'head_dim', 'batch', 'q_heads', 'kv_heads', 'q_len', 'kv_len', 'seed', 'scale']);

// From "4/1" or "4".
function headsInWords(text) {
  const [query, kv] = text.split('/');
  const heads = (count) => (count === '1' ? 'head' : 'heads');
  return kv ? `${query} query heads, ${kv} K/V ${heads(kv)}` : `${query} ${heads(query)}`;
}

// What a panel's rows have in common, beyond head_dim and mask: said where rows differ in it.
function panelKeys(rows, axes) {
  const keys = [
    {valueOf: (row) => row.head_dim, text: (value) => `head_dim ${value}`, always: true},
    {valueOf: (row) => Object.keys(MASK_NAMES).indexOf(row.mask), text: (value) => Object.values(MASK_NAMES)[value], always: true},
    {valueOf: headsText, text: headsInWords},
    {valueOf: (row) => (row.q_len === row.kv_len ? '' : row.q_len), text: (value) => `q_len ${value}`},
    ...axes.filter((name) => !AXES_SHOWN.has(name)).map((name) => ({
      valueOf: (row) => row[name] ?? '',
      text: (value) => (typeof value === 'number' ? `${name} ${value}` : value),
    })),
  ];
  return keys.filter((key) => key.always || distinct(rows, key.valueOf) > 1);
}

function inOrder(a, b) {
  for (let i = 0; i < a.length; ++i) {
    if (a[i] !== b[i]) return isFigure(a[i]) && isFigure(b[i]) ? a[i] - b[i] : String(a[i]).localeCompare(String(b[i]));
  }
  return 0;
}

function splitIntoPanels(rows, axes) {
  let keys = panelKeys(rows, axes);
  const valuesOf = (row) => keys.map((key) => key.valueOf(row));
  // The seed may follow the length; it parts panels only where it alone tells rows apart.
  if (distinct(rows, (row) => JSON.stringify([valuesOf(row), row.line, row.q_len, row.kv_len, row.batch])) < rows.length) {
    keys = [...keys, {valueOf: (row) => row.seed, text: (value) => `seed ${value}`}];
  }
  return grouped(rows, (row) => JSON.stringify(valuesOf(row)))
    .map(([, same]) => ({values: valuesOf(same[0]), rows: same}))
    .sort((a, b) => inOrder(a.values, b.values))
    .map((panel) => ({
      title: panel.values.map((value, i) => (value === '' ? '' : keys[i].text(value))).filter(Boolean).join(', '),
      rows: panel.rows,
    }));
}

// The range of y that the panels share, or null.
function sharedDomain(kind, rows, context) {
  const values = rows.flatMap((row) => kind.values(row, context)).filter((value) => isFigure(value) && value > 0);
  if (!values.length) return null;
  const low = Math.min(...values), high = Math.max(...values);
  const margin = kind.margin ? kind.margin(high / low) : 1.2;
  return kind.log ? [low / margin, high * margin] : [0, high * 1.05];
}

// The charts of one pass, dtype and device, drawn when they are first seen.
class ChartGroup {
  constructor(title, rows, axes, open) {
    this.rows = rows;
    this.axes = axes;
    this.body = element('div', {class: 'panels'});
    this.summary = element('summary', {});
    this.title = title;
    this.views = [];
    this.node = element('details', {class: 'group', open, ontoggle: () => this.refresh()}, this.summary, this.body);
  }

  // Draws anew when it is next seen.
  show(kind, keeps, context) {
    this.wanted = {kind, keeps, context};
    this.refresh();
  }

  refresh() {
    if (!this.wanted) return;
    const {kind, keeps, context} = this.wanted;
    const panels = (kind.panels || splitIntoPanels)(this.rows, this.axes).map((panel) => ({...panel, rows: panel.rows.filter(keeps)})).filter((panel) => panel.rows.length);
    this.summary.textContent = `${this.title} (${panels.length} ${panels.length === 1 ? 'chart' : 'charts'})`;
    this.node.hidden = panels.length === 0;
    if (!this.node.open) return;
    this.wanted = null;
    for (const view of this.views) view.finalize();
    this.views = [];
    this.body.replaceChildren();
    const domain = sharedDomain(kind, panels.flatMap((panel) => panel.rows), context);
    for (const panel of panels) this.draw(kind, {...panel, domain}, context);
  }

  draw(kind, panel, context) {
    const chart = element('div', {class: 'chart'});
    this.body.append(element('figure', {class: 'panel'}, element('figcaption', {}, panel.title), chart));
    const layer = kind.layers(panel, context);
    if (!layer.some((one) => one.data.values.some((value) => value.id !== undefined))) {
      chart.append(element('p', {class: 'note'}, 'No row has this figure.'));
      return;
    }
    const description = `${kind.name}, ${this.title}, ${panel.title}. The table below has the figures.`;
    drawChart(chart, {layer, height: 230, description}, context.rows, context.tell).then((view) => this.views.push(view));
  }
}

// The buttons for the kinds of charts and a group for each pass, dtype and device. `rows` are all rows, of which those
// with `isDrawn` have points; `contextOf(rows)` is what the kinds need to know of a group beside its panels; `tell(row)`
// are the lines of a point. Returns `show(keeps)`, which draws the rows that are kept.
function makeCharts(rows, axes, {kinds, first, isDrawn, nothing, contextOf, tell}) {
  const drawn = rows.filter(isDrawn);
  const devices = distinct(drawn, (row) => row.device);
  const groups = grouped(drawn, (row) => `${row.pass}, ${row.dtype}` + (devices > 1 ? `, ${row.device}` : ''))
    .map(([title, same], index) => new ChartGroup(title, same, axes, index === 0));
  byId('charts').append(...groups.map((group) => group.node));
  if (!groups.length) byId('charts').append(element('p', {class: 'note'}, `Nothing to draw: ${nothing}.`));
  let kind = first, kept = () => true;
  const show = (keeps = kept) => {
    kept = keeps;
    const context = {rows, tell, styles: lineStyles(rows), muted: pageColour('--muted')};
    byId('figure-note').textContent = `${kind.note} A click on a point opens its row.`;
    for (const group of groups) group.show(kind, keeps, {...context, ...contextOf(group.rows)});
  };
  const buttons = kinds.map((one) => element('button', {type: 'button', 'aria-pressed': String(one === kind), onclick: () => {
    kind = one;
    buttons.forEach((button, index) => button.setAttribute('aria-pressed', String(kinds[index] === kind)));
    show();
  }}, one.name));
  byId('figures').append(...buttons);
  return show;
}
