// What the charts of a comparison show: new time ÷ base time of each row with its 95% interval, coloured by verdict.

const isDrawnRow = (row) => isFigure(row.ratio) || row.verdict === NEWLY_WRONG;

// A row that is newly wrong has no ratio: it stands at the upper edge.
function ratioPoint(row, panel) {
  const wrong = row.verdict === NEWLY_WRONG;
  return {
    id: row.id, line: row.line, verdict: row.verdict, y: wrong ? panel.domain[1] : row.ratio,
    low: row.ratio_ci95_low, high: row.ratio_ci95_high,
    description: `${row.line}, ${row.case}: ${row.verdict}` + (wrong ? '' : `, ${factorText(row.ratio)} (${intervalText(row)})`),
  };
}

// Even steps where the ratios are near each other, else 1, 2, 5, 10 and so on.
function ratioTicks(low, high) {
  if (high / low > 4) {
    const powers = Array.from({length: Math.ceil(Math.log10(high / low)) + 2}, (_, i) => 10 ** (Math.floor(Math.log10(low)) + i));
    return powers.flatMap((power) => [power, 2 * power, 5 * power]).filter((tick) => tick >= low && tick <= high);
  }
  const step = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2].find((one) => (high - low) / one <= 6) || 0.5;
  const first = Math.ceil(low / step), last = Math.floor(high / step);
  return Array.from({length: last - first + 1}, (_, i) => (first + i) * step);
}

function ratioAxis([low, high]) {
  const axis = logAxis('× the base’s time', [low, high]);
  return {...axis, axis: {labelOverlap: 'greedy', format: '~g', values: ratioTicks(low, high)}};
}

// Marks at `place`, the encoding of x: intervals, hollow points of what is undecided, filled points, and crosses.
function ratioLayers(values, place, panel, {styles, verdicts, sameWithin, muted}) {
  const color = {field: 'verdict', type: 'nominal', legend: null, scale: {domain: verdicts, range: verdicts.map(verdictColour)}};
  const shape = lookEncoding(styles).shape;
  const y = ratioAxis(panel.domain);
  const told = {tooltip: {field: 'id'}, description: {field: 'description'}};
  const points = (keeps, mark, more) => ({
    data: {values: values.filter(keeps)}, mark: {type: 'point', opacity: 1, cursor: 'pointer', ...mark},
    encoding: {...place, y, color, ...told, ...more},
  });
  const undecided = (value) => value.verdict === 'INCONCLUSIVE', wrong = (value) => value.verdict === NEWLY_WRONG;
  return [
    {data: {values: [{low: 1 / (1 + sameWithin), high: 1 + sameWithin}]}, mark: {type: 'rect', opacity: 0.12, color: muted, clip: true},
     encoding: {y: {...y, field: 'low'}, y2: {field: 'high'}}},
    ruleLayer(y, 1, DASHED, muted),
    {data: {values: values.filter((value) => isFigure(value.low))}, mark: {type: 'rule', strokeWidth: 1.5},
     encoding: {...place, y: {...y, field: 'low'}, y2: {field: 'high'}, color}},
    points(undecided, {filled: false, size: 45, strokeWidth: 1.5}, {shape}),
    points((value) => !undecided(value) && !wrong(value), {filled: true, size: 55}, {shape}),
    points(wrong, {filled: true, size: 130, shape: 'cross', angle: 45}),
  ];
}

function ratioValues(row) {
  return [row.ratio_ci95_low, row.ratio_ci95_high, 1];
}

const ratioMargin = (range) => Math.max(1.02, range ** 0.05);

const RATIO_MARKS = 'The line is the 95% interval. Red: SLOWER, and a cross at the upper edge: NEWLY_WRONG, which has no time. ' +
  'Green: FASTER. Hollow: INCONCLUSIVE. The band is the range of SAME.';

// Lengths as words in order, with the batch where one length has several.
function lengthLabels(rows) {
  const batches = grouped(rows, byLength).some(([, same]) => distinct(same, (row) => row.batch) > 1);
  const label = (row) => lengthText(row.kv_len) + (batches ? `, batch ${row.batch}` : '');
  const inOrderOfLength = [...rows].sort((a, b) => a.kv_len - b.kv_len || a.batch - b.batch);
  return {label, sort: [...new Set(inOrderOfLength.map(label))]};
}

function byRatio(a, b) {
  return (isFigure(a.ratio) ? a.ratio : Infinity) - (isFigure(b.ratio) ? b.ratio : Infinity) || a.id - b.id;
}

const RATIO_CHARTS = [
  {
    name: 'Over length', log: true, margin: ratioMargin, values: ratioValues,
    note: `New time ÷ base time over length; providers are side by side. ${RATIO_MARKS}`,
    layers(panel, context) {
      const {label, sort} = lengthLabels(panel.rows);
      const place = {
        x: {field: 'x', type: 'ordinal', sort, title: 'length', axis: {labelAngle: 0, labelOverlap: 'greedy', grid: false}},
        xOffset: {field: 'line', type: 'nominal', scale: {domain: [...context.styles.keys()]}},
      };
      return ratioLayers(panel.rows.map((row) => ({...ratioPoint(row, panel), x: label(row)})), place, panel, context);
    },
  },
  {
    name: 'By provider', log: true, margin: ratioMargin, values: ratioValues,
    note: `New time ÷ base time of a provider’s rows, in ascending order. ${RATIO_MARKS}`,
    panels: (rows) => grouped(rows, (row) => row.line).map(([title, same]) => ({title, rows: [...same].sort(byRatio)})),
    layers(panel, context) {
      const place = {x: {field: 'x', type: 'quantitative', title: 'rows, by ratio', axis: {grid: false, tickMinStep: 1, format: 'd'},
                         scale: {domain: [0.5, panel.rows.length + 0.5], nice: false}}};
      return ratioLayers(panel.rows.map((row, i) => ({...ratioPoint(row, panel), x: i + 1})), place, panel, context);
    },
  },
];

// What a pointer over a point says.
function comparisonTooltip(row) {
  return [
    row.case,
    row.verdict + (isFigure(row.ratio) ? `: ${factorText(row.ratio)} × the base’s time (95%: ${intervalText(row)})` : ''),
    isFigure(row.median_ratio) && `medians: ${significant(row.base_median_ms)} to ${significant(row.new_median_ms)} ms`,
    reasonText(row),
  ].filter(Boolean);
}
