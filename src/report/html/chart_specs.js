// Vega-Lite specifications: what a panel of each kind of chart shows. A panel has `rows` of one case but
// for length and batch, and `domain`, the range of y that all panels of its group share.

const DOTTED = [2, 3];
const DASHED = [6, 4];
const DASH_DOTTED = [8, 3, 2, 3];

// The largest part of the rows that differ in length alone, at one number of tokens or else at one
// batch: only those are joined by a line.
function joinedRows(rows) {
  const points = [...new Map(rows.map((row) => [`${row.batch} ${row.kv_len}`, row])).values()];
  const keys = [(row) => row.batch * row.kv_len, (row) => row.batch];
  let best = {size: 0};
  for (const key of keys) {
    for (const [value, same] of grouped(points, key)) {
      if (same.length > best.size) best = {size: same.length, key, value};
    }
  }
  return new Set(rows.filter((row) => best.key(row) === best.value));
}

// A point for each row that has the figure.
function points(rows, x, y, more) {
  const joined = joinedRows(rows);
  return rows.filter((row) => isFigure(x(row)) && isFigure(y(row)) && y(row) > 0).map((row) => ({
    id: row.id, line: row.line, length: row.kv_len, x: x(row), y: y(row), joined: joined.has(row),
    description: `${row.line}, ${row.case}: ${significant(y(row))}`, ...(more ? more(row) : {}),
  })).sort((a, b) => a.length - b.length);
}

function lookEncoding(styles) {
  const domain = [...styles.keys()];
  const range = (name) => domain.map((line) => styles.get(line)[name]);
  return {
    color: {field: 'line', type: 'nominal', legend: null, scale: {domain, range: range('colour')}},
    shape: {field: 'line', type: 'nominal', legend: null, scale: {domain, range: range('shape')}},
  };
}

// Joined points as lines with markers, others as markers alone.
function lineLayers(values, styles, x, y, {dash, hollow, thin} = {}) {
  const look = lookEncoding(styles);
  const order = {field: 'length', type: 'quantitative'};
  return [
    {data: {values: values.filter((value) => value.joined)},
     mark: {type: 'line', strokeWidth: thin ? 0.8 : 2, ...(dash ? {strokeDash: dash} : {})},
     encoding: {x, y, order, color: look.color}},
    {data: {values},
     mark: {type: 'point', filled: !hollow, size: 45, opacity: 1, strokeWidth: 1.5, cursor: 'pointer'},
     encoding: {x, y, ...look, tooltip: {field: 'id'}, description: {field: 'description'}}},
  ];
}

function ruleLayer(y, value, dash, colour) {
  return {data: {values: [{y: value}]}, mark: {type: 'rule', strokeDash: dash, color: colour, strokeWidth: 1.2},
          encoding: {y}};
}

const LENGTH_LABELS = "datum.value >= 1024 && datum.value % 1024 == 0 ? datum.value / 1024 + 'k' : '' + datum.value";
const BYTE_LABELS = "datum.value < 1024 ? datum.value + ' B' : datum.value < 1048576 ? datum.value / 1024 + ' KiB' : " +
  "datum.value < 1073741824 ? datum.value / 1048576 + ' MiB' : datum.value / 1073741824 + ' GiB'";

function lengthAxis(rows) {
  const lengths = [...new Set(rows.map((row) => row.kv_len))].sort((a, b) => a - b);
  return {field: 'x', type: 'quantitative', title: rows.every((row) => row.q_len === row.kv_len) ? 'length' : 'K/V length',
          scale: {type: 'log', base: 2, nice: false, padding: 10, domain: [lengths[0], lengths[lengths.length - 1]]},
          axis: {values: lengths, labelExpr: LENGTH_LABELS, labelOverlap: 'greedy', labelFlush: false, grid: false}};
}

function logAxis(title, domain, base = 10, labelExpr = null) {
  return {field: 'y', type: 'quantitative', title,
          scale: {type: 'log', base, nice: false, ...(domain ? {domain} : {})},
          axis: {labelOverlap: 'greedy', tickCount: 5, ...(labelExpr ? {labelExpr} : {format: '~g'})}};
}

function linearAxis(title, domain) {
  return {field: 'y', type: 'quantitative', title, scale: {zero: true, nice: true, ...(domain ? {domain} : {})},
          axis: {tickCount: 5}};
}

// ---- the kinds of charts. `values(row)` are what y has to have room for.

// FLOP/s of what the rows' shares are of: the medians.
function ceilingsOf(rows, rate) {
  return [['pct_of_ceiling', DASHED], ['pct_of_peak', DASH_DOTTED]].map(([column, dash]) => {
    const rates = rows.filter((row) => isFigure(row[column]) && row[column] > 0).map((row) => row.tflops / (row[column] / 100));
    return rates.length ? {rate: median(rates) * rate.scale, dash} : null;
  }).filter(Boolean);
}

const byLength = (row) => row.kv_len;

const KINDS = [
  {
    name: 'Time', log: true,
    note: () => 'Median time over length. The band is the 95% confidence interval of the median. Points of another batch are not joined.',
    values: (row) => [row.ci_low_ms, row.ci_high_ms, row.median_ms],
    layers(panel, {styles}) {
      const x = lengthAxis(panel.rows), y = logAxis('ms', panel.domain);
      const values = points(panel.rows, byLength, (row) => row.median_ms,
        (row) => ({low: row.ci_low_ms, high: row.ci_high_ms}));
      const band = {data: {values: values.filter((value) => value.joined && isFigure(value.low))}, mark: {type: 'area', opacity: 0.25},
                    encoding: {x, y: {...y, field: 'low'}, y2: {field: 'high'}, color: lookEncoding(styles).color}};
      return [band, ...lineLayers(values, styles, x, y)];
    },
  },
  {
    name: 'FLOP/s',
    note: () => 'FLOPs of the unmasked query-key pairs, per second. Dashed: a large GEMM in the same rounds. Dash-dotted: the peak at the measured SM clock.',
    values: (row, {rate}) => [row.tflops, ...['pct_of_ceiling', 'pct_of_peak'].map((column) => row.tflops / row[column] * 100)]
      .map((value) => value * rate.scale),
    layers(panel, {styles, rate, muted}) {
      const x = lengthAxis(panel.rows), y = linearAxis(rate.unit, panel.domain);
      return [...ceilingsOf(panel.rows, rate).map((ceiling) => ruleLayer(y, ceiling.rate, ceiling.dash, muted)),
              ...lineLayers(points(panel.rows, byLength, (row) => row.tflops * rate.scale), styles, x, y)];
    },
  },
  {
    name: 'Speed-up', log: true,
    note: () => 'Speed-up over naive on the same case, in the same file. The dashed line is 1.',
    values: (row) => [row.speedup_vs_naive, 1],
    layers(panel, {styles, muted}) {
      const x = lengthAxis(panel.rows), y = logAxis('× naive', panel.domain);
      return [ruleLayer(y, 1, DASHED, muted),
              ...lineLayers(points(panel.rows, byLength, (row) => row.speedup_vs_naive), styles, x, y)];
    },
  },
  {
    name: 'Memory', log: true,
    note: () => 'Peak bytes allocated. Solid: inputs, outputs and workspace. Dotted: the workspace alone.',
    values: (row) => [row.peak_bytes, row.workspace_bytes],
    layers(panel, {styles}) {
      const x = lengthAxis(panel.rows), y = logAxis('bytes', panel.domain, 2, BYTE_LABELS);
      return [...lineLayers(points(panel.rows, byLength, (row) => row.peak_bytes), styles, x, y),
              ...lineLayers(points(panel.rows, byLength, (row) => row.workspace_bytes), styles, x, y, {dash: DOTTED, hollow: true})];
    },
  },
  {
    name: 'Traffic', log: true,
    note: () => 'Bytes moved. Solid: requested by the provider’s loops. Dotted: device memory traffic by hardware counters. Dashed grey: compulsory.',
    values: (row) => [row.bytes_requested, row.bytes_measured, row.bytes_compulsory],
    layers(panel, {styles, muted}) {
      const x = lengthAxis(panel.rows), y = logAxis('bytes', panel.domain, 2, BYTE_LABELS);
      const least = [...new Map(panel.rows.map((row) => [`${row.batch} ${row.kv_len}`, row])).values()];
      const compulsory = points(least, byLength, (row) => row.bytes_compulsory).filter((value) => value.joined);
      return [{data: {values: compulsory}, mark: {type: 'line', strokeDash: DASHED, strokeWidth: 1.2, color: muted},
               encoding: {x, y, order: {field: 'length', type: 'quantitative'}}},
              ...lineLayers(points(panel.rows, byLength, (row) => row.bytes_requested), styles, x, y),
              ...lineLayers(points(panel.rows, byLength, (row) => row.bytes_measured), styles, x, y, {dash: DOTTED, hollow: true})];
    },
  },
  {
    name: 'Roofline',
    note: () => 'FLOP/s over FLOPs per byte: of the measured bytes where there are any, else of those requested. The slope is the measured copy bandwidth; the flat lines are as for FLOP/s. The numbers are lengths.',
    values: () => [],
    layers(panel, {styles, rate, muted}) {
      const values = points(panel.rows, (row) => row.intensity, (row) => row.tflops * rate.scale);
      const axis = {type: 'quantitative', scale: {type: 'log', base: 2, nice: false, padding: 12}, axis: {labelOverlap: 'greedy', tickCount: 5, format: '~g'}};
      const x = {...axis, field: 'x', title: 'FLOP per byte'}, y = {...axis, field: 'y', title: rate.unit};
      const ends = grouped(values.filter((value) => value.joined), (value) => value.line)
        .flatMap(([, line]) => [line[0], line[line.length - 1]])
        .map((value) => ({...value, text: lengthText(value.length)}));
      return [...roofLayers(values, panel.rows, rate, x, y, muted),
              ...lineLayers(values, styles, x, y, {thin: true}),
              {data: {values: ends}, mark: {type: 'text', dy: -9, fontSize: 10},
               encoding: {x, y, text: {field: 'text'}, color: lookEncoding(styles).color}}];
    },
  },
];

// The ceilings, and the copy bandwidth up to where it meets the highest.
function roofLayers(values, rows, rate, x, y, colour) {
  const ceilings = ceilingsOf(rows, rate);
  if (!ceilings.length || !values.length) return [];
  const copy = rows[0].result.ceilings.find((ceiling) => ceiling.name === 'copy');
  const bandwidth = copy ? copy.rate * 1e-12 * rate.scale : null;  // in the unit of y, for each FLOP per byte
  const low = Math.min(...values.map((value) => value.x)), high = Math.max(...values.map((value) => value.x));
  const highest = Math.max(...ceilings.map((ceiling) => ceiling.rate));
  const knee = bandwidth ? highest / bandwidth : low;
  const line = (ends, dash) => ({data: {values: ends}, mark: {type: 'line', color: colour, strokeWidth: 1.2, ...(dash ? {strokeDash: dash} : {})},
                                 encoding: {x, y}});
  const layers = ceilings.map(({rate: top, dash}) => line(
    [{x: bandwidth ? top / bandwidth : low, y: top}, {x: Math.max(high * 1.5, knee * 2), y: top}], dash));
  if (bandwidth) {
    const start = Math.min(low, knee / 2);
    layers.push(line([{x: start, y: start * bandwidth}, {x: knee, y: highest}]));
  }
  return layers;
}
