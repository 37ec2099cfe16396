// Parts of Vega-Lite specifications: points, lines, rules and axes of a panel, whose rows differ in length, batch and
// provider.

const DASHED = [6, 4];

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

const byLength = (row) => row.kv_len;
