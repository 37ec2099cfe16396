// The table of a report: its columns, and what a row opens to.

const VERDICT_LOOKS = {passed: 'good', sampled: 'good', coarse: 'warn', failed: 'bad'};
const STATUS_LOOKS = {ok: null, failed: 'bad', crashed: 'bad', timeout: 'bad', error: 'bad', out_of_memory: 'warn'};

function resultColumns(rows, axes) {
  const has = (name) => rows.some((row) => isFigure(row[name]));
  const rate = rateUnit(rows);
  return [
    distinct(rows, (row) => row.file) > 1 && rowWords('file', 'The result file', (row) => row.file),
    ...caseColumns(rows, axes),
    {...rowWords('status', '', (row) => row.status), look: (row) => STATUS_LOOKS[row.status]},
    {...rowWords('verdict', 'Of the check against the fp64 reference', (row) => row.verified), look: (row) => VERDICT_LOOKS[row.verified]},
    rowFigure('median ms', 'Median of the samples', (row) => row.median_ms, significant),
    rowFigure('± %', 'Half the width of the 95% interval, in percent of the median', halfWidth, (value) => value.toFixed(1)),
    rowFigure(rate.unit, 'FLOPs of the unmasked pairs per second', (row) => (isFigure(row.tflops) ? row.tflops * rate.scale : null), significant),
    rowFigure('% gemm', 'FLOP/s over those of a large GEMM in the same rounds', (row) => row.pct_of_ceiling, percentText),
    has('pct_of_stream') && rowFigure('% stream', 'Time of a launch that only moves the same rows, over the median', (row) => row.pct_of_stream, percentText),
    has('pct_of_peak') && rowFigure('% peak', 'FLOP/s over the peak at the measured SM clock', (row) => row.pct_of_peak, percentText),
    has('speedup_vs_naive') && rowFigure('× naive', 'Speed-up over naive on the same case', (row) => row.speedup_vs_naive, significant),
    rowFigure('peak memory', 'Inputs, outputs and workspace', (row) => row.peak_bytes, bytesText),
    rowFigure('requested', 'Bytes that the loops read and write', (row) => row.bytes_requested, bytesText),
    has('bytes_measured') && rowFigure('measured', 'Device memory traffic, by hardware counters', (row) => row.bytes_measured, bytesText),
    rowFigure('FLOP/byte', 'Of the measured bytes, else of those requested', (row) => row.intensity, significant),
    has('rel_rms_err') && rowFigure('rel rms', 'Norm of the error over the norm of the exact values', (row) => row.rel_rms_err, exponential),
    rowFigure('max err', 'Largest absolute error', (row) => row.max_abs_err, exponential),
    rowFigure('λ', 'Worst error in units of the rounding-error bound', (row) => row.lambda, significant),
    has('sm_mhz') && rowFigure('SM MHz', 'Median over the samples', (row) => row.sm_mhz, String),
    has('power_w') && rowFigure('W', 'Median over the samples', (row) => row.power_w, significant),
    has('throttled') && rowFigure('throttled %', 'Share of samples after which the clock was held down', (row) => (isFigure(row.throttled) ? row.throttled * 100 : null), significant),
    {...rowWords('kernel', '', (row) => row.kernel), wide: true},
    {...rowWords('reason or note', '', (row) => row.reason || row.notes), wide: true},
  ].filter(Boolean);
}

// What a row opens to.
function resultDetails(row) {
  return [element('div', {class: 'columns'}, row.samples && samplesPart(row), figuresPart(row)),
          checksPart(row), kernelsPart(row), commandPart(row)];
}
