// Parts of an open row: its samples in time order, errors, kernels, and the command that repeats it.

// ---- samples

function sampleValues(samples) {
  const throttled = new Set(samples.throttled), disturbed = new Set(samples.disturbed);
  return samples.ms.map((ms, i) => ({
    number: i + 1, ms,
    sm_mhz: samples.sm_mhz ? samples.sm_mhz[i] : null,
    power_w: samples.power_w ? samples.power_w[i] : null,
    state: throttled.has(i) ? 'throttled' : disturbed.has(i) ? 'disturbed' : 'undisturbed',
  }));
}

// The numbers between the last sample of a process and the first of the next.
function processBounds(samples) {
  const bounds = [];
  let sum = 0.5;
  for (const count of (samples.per_process || []).slice(0, -1)) bounds.push({number: sum += count});
  return bounds;
}

function sampleLayers(row, field, title, range) {
  const samples = row.samples, values = sampleValues(samples);
  const x = {field: 'number', type: 'quantitative', title: 'sample, in time order', scale: {domain: [0.5, samples.ms.length + 0.5], nice: false},
             axis: {grid: false, tickMinStep: 1, format: 'd'}};
  const y = {field, type: 'quantitative', title, scale: {zero: false, ...(range ? {domain: range} : {})}, axis: {tickCount: 4, minExtent: 40}};
  const color = {field: 'state', type: 'nominal', legend: null, scale: {
    domain: ['undisturbed', 'throttled', 'disturbed'], range: [pageColour('--accent'), pageColour('--bad'), pageColour('--warn')]}};
  const layers = [
    {data: {values: processBounds(samples)}, mark: {type: 'rule', color: pageColour('--line')}, encoding: {x}},
    {data: {values}, mark: {type: 'line', strokeWidth: 0.7, color: pageColour('--muted'), opacity: 0.6}, encoding: {x, y}},
    {data: {values}, mark: {type: 'point', filled: true, size: 28, opacity: 1}, encoding: {x, y, color}},
  ];
  if (field === 'ms') layers.unshift(...intervalLayers(row, y, pageColour('--muted')));
  return layers;
}

function intervalLayers(row, y, colour) {
  const layers = [ruleLayer({...y, field: 'y'}, row.median_ms, DASHED, colour)];
  if (isFigure(row.ci_low_ms)) {
    layers.unshift({data: {values: [{low: row.ci_low_ms, high: row.ci_high_ms}]}, mark: {type: 'rect', opacity: 0.15, color: colour},
                    encoding: {y: {...y, field: 'low'}, y2: {field: 'high'}}});
  }
  return layers;
}

function samplesNote(row) {
  const {ms, throttled = [], disturbed = [], warmup_runs, cache, stop_reason, per_process} = row.samples;
  const parts = [`${ms.length} samples after ${warmup_runs} warm-up runs, cache ${cache}; stopped by ${stop_reason.replaceAll('_', ' ')}.`,
                 'The dashed line is the median, the band its 95% interval.'];
  if (throttled.length) parts.push(`Red: the clock was held down (${throttled.length}).`);
  if (disturbed.length) parts.push(`Amber: threads waited for a core (${disturbed.length}).`);
  if (per_process) parts.push(`Upright lines part ${per_process.length} processes.`);
  return parts.join(' ');
}

// The charts of the samples, drawn once they are in the page. `ranges` are those of the figures by name; a figure
// without one has its own.
function samplesPart(row, ranges = {}) {
  const charts = [['ms', 'ms', 150]];
  if (row.samples.sm_mhz) charts.push(['sm_mhz', 'SM MHz', 80], ['power_w', 'W', 80]);
  const part = element('div', {}, element('h3', {}, 'Samples'), element('p', {class: 'note'}, samplesNote(row)));
  for (const [field, title, height] of charts) {
    const chart = element('div', {class: 'chart'});
    part.append(chart);
    requestAnimationFrame(() => drawChart(chart, {
      layer: sampleLayers(row, field, title, ranges[field]), height, description: `${title} of each sample of ${row.line}, ${row.case}`,
    }));
  }
  return part;
}

// ---- tables and the command

const wordsColumn = (title) => ({title});
const figureColumn = (title) => ({title, figure: true});

function innerTable(caption, headings, rows) {
  return element('div', {class: 'inner'}, element('table', {}, element('caption', {}, caption),
    element('thead', {}, element('tr', {}, headings.map(({title, figure}) => element('th', {scope: 'col', class: figure && 'figure'}, title)))),
    element('tbody', {}, rows.map((cells) => element('tr', {}, cells.map((cell, i) => (i === 0
      ? element('th', {scope: 'row'}, cell)
      : element('td', {class: headings[i].figure ? 'figure' : 'name'}, cell))))))));
}

function checksPart(row) {
  const {tensors, fraction, reason} = row.checks;
  const part = element('div', {}, element('h3', {}, 'Check'));
  if (reason) part.append(element('p', {class: 'bad'}, reason));
  if (!tensors.length) {
    if (!reason) part.append(element('p', {class: 'note'}, 'Not checked.'));
    return part;
  }
  part.append(innerTable(`Errors against the fp64 reference; ${significant(fraction * 100)}% of the elements checked`,
    [...['tensor', 'result'].map(wordsColumn), ...['rel rms', 'max abs', 'mean abs', '÷ naive', 'λ', 'not finite', 'worst at'].map(figureColumn)],
    tensors.map((error) => [error.tensor, error.passed ? 'passed' : 'failed', orDash(error.rel_rms, exponential), orDash(error.max_abs, exponential),
                            orDash(error.mean_abs, exponential), orDash(error.ratio, significant), orDash(error.lambda, significant),
                            String(error.nonfinite), error.worst.join(', ')])));
  return part;
}

function kernelsPart(row) {
  if (!row.kernels) return null;
  return element('div', {}, element('h3', {}, 'Kernels'), innerTable('In the order of one run',
    [...['#', 'name'].map(wordsColumn), ...['blocks', 'threads', 'registers', 'shared', 'local', 'blocks/SM'].map(figureColumn)],
    row.kernels.map((kernel, i) => [String(i + 1), kernel.name, String(kernel.blocks), String(kernel.threads), String(kernel.registers),
                                    bytesText(kernel.static_shared_bytes + kernel.dynamic_shared_bytes), bytesText(kernel.local_bytes), String(kernel.blocks_per_multiprocessor)])));
}

function figuresPart(row) {
  const counted = (value) => (isFigure(value) ? bytesText(value) : null);
  return element('div', {}, element('h3', {}, 'Figures'), definitions([
    ['Case', row.case],
    ['Kernel', row.kernel],
    ['File', row.file],
    ['Status', row.status + (row.reason ? `: ${row.reason}` : '')],
    ['Notes', row.notes],
    ['95% interval', isFigure(row.ci_low_ms) ? `${significant(row.ci_low_ms)} to ${significant(row.ci_high_ms)} ms` : null],
    ['Fastest sample', isFigure(row.min_ms) ? `${significant(row.min_ms)} ms` : null],
    ['FlashAttention’s convention', isFigure(row.tflops_convention) ? `${significant(row.tflops_convention)} TFLOP/s` : null],
    ['Memory', counted(row.peak_bytes) && `${counted(row.peak_bytes)}, of which workspace ${counted(row.workspace_bytes)}`],
    ['Bytes, compulsory', counted(row.bytes_compulsory)],
    ['Bytes, requested', counted(row.bytes_requested)],
    ['Bytes, measured', counted(row.bytes_measured)],
    ['L2 bytes, measured', counted(row.l2_bytes)],
    ['Tensor operations', isFigure(row.tensor_ops_per_flop) ? `${significant(row.tensor_ops_per_flop)} × the FLOPs (${row.tensor_ops_verdict.replaceAll('_', ' ')})` : null],
    ['Energy', isFigure(row.joules_per_run) ? `${significant(row.joules_per_run)} J a run` : null],
    ['Preparation', isFigure(row.prepare_ms) ? `${significant(row.prepare_ms)} ms` : null],
    ['Launch on the host', isFigure(row.host_us) ? `${significant(row.host_us)} µs` : null],
    ['Repeated runs', row.determinism],
  ]));
}

function commandPart(row, heading = 'Repeat') {
  const command = element('code', {class: 'command', tabindex: '0'}, row.command);
  const said = element('span', {role: 'status', class: 'muted'});
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(row.command);
      said.textContent = 'Copied';
    } catch {  // some browsers refuse this to a file
      getSelection().selectAllChildren(command);
      said.textContent = document.execCommand('copy') ? 'Copied' : 'Selected: press Ctrl+C';
    }
  };
  return element('div', {}, element('h3', {}, heading), element('p', {class: 'repeat'},
    element('button', {type: 'button', class: 'copy', onclick: copy}, 'Copy command'), said), command);
}
