// The page: reads the document that flashbench put into it, and shows it.

const report = JSON.parse(byId('document').textContent);
const allRows = collectRows(report.results);

showHeader(report.results);
const showCharts = makeCharts(allRows, report.axes);
const showTable = makeTable(allRows);
const keepsRow = makeFilters(byId('filters'), allRows, () => {
  showTable(keepsRow);
  showCharts(keepsRow);
});
showTable(keepsRow);
showCharts(keepsRow);
showEnvironment(report.results);

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  paintSwatches(byId('filters'), lineStyles(allRows));
  showCharts(keepsRow);
});
