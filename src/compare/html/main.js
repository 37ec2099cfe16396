// The page of a comparison: reads the document that flashbench put into it, and shows it.

const shown = JSON.parse(byId('document').textContent);
const allRows = comparisonRows(shown);
const verdicts = Object.keys(shown.comparison.counts);
const byVerdict = {
  title: 'Verdict', valueOf: (row) => row.verdict, values: verdicts,
  swatch: (verdict) => ({sign: verdict === 'INCONCLUSIVE' ? '○' : verdict === NEWLY_WRONG ? '✖' : '●', colour: verdictColour(verdict)}),
};
const swatchOfProvider = (line) => ({...lineStyles(allRows).get(line), colour: 'inherit'});

showHeader(shown, (only) => filters.set((filter, verdict) => filter !== byVerdict || verdict === only));
const showCharts = makeCharts(allRows, shown.axes, {
  kinds: RATIO_CHARTS, first: RATIO_CHARTS[0], isDrawn: isDrawnRow, nothing: 'no row has times on both sides',
  contextOf: () => ({verdicts, sameWithin: sameWithin(shown.comparison.options)}), tell: comparisonTooltip,
});
const showTable = makeTable(allRows, comparisonColumns(allRows, shown.axes, verdicts), comparisonDetails);
const filters = makeFilters(allRows, [
  byVerdict, {title: 'Provider', valueOf: (row) => row.line, swatch: swatchOfProvider}, ...CASE_FILTERS,
], showTable, showCharts);
showEnvironment(shown.results);
showConditions(shown.comparison);
showRule(shown.comparison);
