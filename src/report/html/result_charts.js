// What the charts of a report show: its kinds of charts, and what a pointer over a point says. `values(row)` are what y
// has to have room for; a panel's `domain` is the range of y that all panels of its group share.

const DOTTED = [2, 3];
const DASH_DOTTED = [8, 3, 2, 3];

const BYTE_LABELS = "datum.value < 1024 ? datum.value + ' B' : datum.value < 1048576 ? datum.value / 1024 + ' KiB' : " +
  "datum.value < 1073741824 ? datum.value / 1048576 + ' MiB' : datum.value / 1073741824 + ' GiB'";


// FLOP/s of what the rows' shares are of: the medians.
function ceilingsOf(rows, rate) {
  return [['pct_of_ceiling', DASHED], ['pct_of_peak', DASH_DOTTED]].map(([column, dash]) => {
    const rates = rows.filter((row) => isFigure(row[column]) && row[column] > 0).map((row) => row.tflops / (row[column] / 100));
    return rates.length ? {rate: median(rates) * rate.scale, dash} : null;
  }).filter(Boolean);
}

const RESULT_CHARTS = [
  {
    name: 'Time', log: true,
    note: 'Median time over length. The band is the 95% confidence interval of the median. Points of another batch are not joined.',
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
    note: 'FLOPs of the unmasked query-key pairs, per second. Dashed: a large GEMM in the same rounds. Dash-dotted: the peak at the measured SM clock.',
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
    note: 'Speed-up over naive on the same case, in the same file. The dashed line is 1.',
    values: (row) => [row.speedup_vs_naive, 1],
    layers(panel, {styles, muted}) {
      const x = lengthAxis(panel.rows), y = logAxis('× naive', panel.domain);
      return [ruleLayer(y, 1, DASHED, muted),
              ...lineLayers(points(panel.rows, byLength, (row) => row.speedup_vs_naive), styles, x, y)];
    },
  },
  {
    name: 'Memory', log: true,
    note: 'Peak bytes allocated. Solid: inputs, outputs and workspace. Dotted: the workspace alone.',
    values: (row) => [row.peak_bytes, row.workspace_bytes],
    layers(panel, {styles}) {
      const x = lengthAxis(panel.rows), y = logAxis('bytes', panel.domain, 2, BYTE_LABELS);
      return [...lineLayers(points(panel.rows, byLength, (row) => row.peak_bytes), styles, x, y),
              ...lineLayers(points(panel.rows, byLength, (row) => row.workspace_bytes), styles, x, y, {dash: DOTTED, hollow: true})];
    },
  },
  {
    name: 'Traffic', log: true,
    note: 'Bytes moved. Solid: requested by the provider’s loops. Dotted: device memory traffic by hardware counters. Dashed grey: compulsory.',
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
    note: 'FLOP/s over FLOPs per byte: of the measured bytes where there are any, else of those requested. The slope is the measured copy bandwidth; the flat lines are as for FLOP/s. The numbers are lengths.',
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

// ---- a pointer over a point

function resultTooltip(row) {
  const half = halfWidth(row);
  return [
    row.case,
    `${significant(row.median_ms)} ms` + (half === null ? '' : ` ±${half.toFixed(1)}% (95%: ${significant(row.ci_low_ms)} to ${significant(row.ci_high_ms)})`),
    `${significant(row.tflops)} TFLOP/s` + (isFigure(row.pct_of_ceiling) ? `, ${percentText(row.pct_of_ceiling)}% of the GEMM` : '') +
      (isFigure(row.speedup_vs_naive) ? `, ${significant(row.speedup_vs_naive)}× naive` : ''),
    `${row.verified}` + (isFigure(row.sm_mhz) ? `; ${row.sm_mhz} MHz, ${significant(row.power_w)} W` : ''),
    row.kernel,
  ].filter(Boolean);
}
