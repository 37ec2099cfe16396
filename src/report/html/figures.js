// The rows of all results, and how their figures read.

const DASH = '–';

function isFigure(value) {
  return typeof value === 'number' && Number.isFinite(value);
}

function orDash(value, text) {
  return isFigure(value) ? text(value) : DASH;
}

// Four significant digits, trailing zeros too, so that the figures of a column are equally exact.
function fourDigits(value) {
  const text = value.toPrecision(4);
  return text.includes('e') ? String(Number(text)) : text;  // above 9999
}

// The same, with an exponent where they would not be readable.
function significant(value) {
  if (value === 0) return '0';
  const size = Math.abs(value);
  return size >= 1e-4 && size < 1e7 ? fourDigits(value) : value.toExponential(3);
}

function exponential(value) {
  return value.toExponential(1);
}

function bytesText(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (value >= 1024 && unit + 1 < units.length) {
    value /= 1024;
    ++unit;
  }
  return `${unit === 0 ? value : fourDigits(value)} ${units[unit]}`;
}

function percentText(value) {
  return value.toFixed(1);
}

// Of the median, in percent.
function halfWidth(row) {
  if (!isFigure(row.ci_low_ms) || !isFigure(row.ci_high_ms)) return null;
  return 50 * (row.ci_high_ms - row.ci_low_ms) / row.median_ms;
}

function headsText(row) {
  return row.q_heads === row.kv_heads ? `${row.q_heads}` : `${row.q_heads}/${row.kv_heads}`;
}

function lengthText(length) {
  return length >= 1024 && length % 1024 === 0 ? `${length / 1024}k` : `${length}`;
}

const MASK_NAMES = {
  none: 'no mask',
  causal_top_left: 'causal, top left',
  causal_bottom_right: 'causal, bottom right',
};

function maskText(mask) {
  return MASK_NAMES[mask] || mask;
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

// [[value, rows]] in the order in which the values first appear.
function grouped(rows, valueOf) {
  const groups = new Map();
  for (const row of rows) {
    const value = valueOf(row);
    if (!groups.has(value)) groups.set(value, []);
    groups.get(value).push(row);
  }
  return [...groups];
}

function distinct(rows, valueOf) {
  return new Set(rows.map(valueOf)).size;
}

// The last part of each file's path, or the whole path where those are the same.
function fileNames(results) {
  const short = results.map((result) => result.file.replace(/^.*\//, ''));
  return new Set(short).size === short.length ? short : results.map((result) => result.file);
}

// The rows of all results, each with its number, its result, its file and the line of a chart that it
// belongs to: the provider, and the file where several have the provider on the same case.
function collectRows(results) {
  const files = fileNames(results);
  const rows = [];
  results.forEach((result, index) => {
    for (const row of result.rows) {
      rows.push({...row, id: rows.length, result, file: row.source || files[index]});
    }
  });
  const ambiguous = distinct(rows, (row) => JSON.stringify([row.case, row.provider, row.device])) < rows.length;
  for (const row of rows) row.line = ambiguous ? `${row.provider} (${row.file})` : row.provider;
  return rows;
}

function isTimed(row) {
  return row.status === 'ok' && isFigure(row.median_ms);
}

// How FLOP/s are shown: {unit, scale} from TFLOP/s.
function rateUnit(rows) {
  const fastest = Math.max(0, ...rows.filter(isTimed).map((row) => row.tflops));
  return fastest >= 10 ? {unit: 'TFLOP/s', scale: 1} : {unit: 'GFLOP/s', scale: 1000};
}
