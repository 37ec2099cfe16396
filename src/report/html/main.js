// The page of a report: reads the document that flashbench put into it, and shows it.

// The title of the page, and for each result a line on what it is and the lines that sum it up.
function showHeader(results) {
  const names = [...new Set(results.map((result) => wordsOf(result.config.name) || result.file))];
  byId('title').textContent = names.join(', ');
  document.title = `${names.join(', ')} – flashbench report`;
  for (const result of results) {
    const device = result.devices.map((one) => wordsOf(one.name)).join(', ');
    byId('results').append(element('section', {},
      element('p', {}, element('b', {}, device), ` · flashbench ${wordsOf(result.meta.version)} · ${wordsOf(result.meta.started)} · `,
        element('code', {}, result.file)),
      result.config.description && element('p', {class: 'muted'}, wordsOf(result.config.description)),
      element('ul', {}, result.summary.map((line) => element('li', {class: line.startsWith('warning') ? 'warn' : null}, line)))));
  }
}

const report = JSON.parse(byId('document').textContent);
const allRows = collectRows(report.results);

showHeader(report.results);
const showCharts = makeCharts(allRows, report.axes, {
  kinds: RESULT_CHARTS, first: RESULT_CHARTS[1], isDrawn: isTimed, nothing: 'no row has a verified time',
  contextOf: (rows) => ({rate: rateUnit(rows)}), tell: resultTooltip,
});
const showTable = makeTable(allRows, resultColumns(allRows, report.axes), resultDetails);
makeFilters(allRows, [
  {title: 'Provider', valueOf: (row) => row.line, swatch: (line) => lineStyles(allRows).get(line)},
  {title: 'File', valueOf: (row) => row.file},
  ...CASE_FILTERS,
  {title: 'Status', valueOf: (row) => row.status},
  {title: 'Verdict', valueOf: (row) => row.verified},
], showTable, showCharts);
showEnvironment(report.results);
