// The table of a comparison: its columns, and what a row opens to.

function comparisonColumns(rows, axes, verdicts) {
  return [
    {title: 'verdict', hint: 'The worst first', valueOf: (row) => verdicts.indexOf(row.verdict), text: (row) => row.verdict,
     look: (row) => VERDICT_LOOKS[row.verdict], sortsFirst: true},
    ...caseColumns(rows, axes),
    rowFigure('base ms', 'Median of the base’s samples', (row) => row.base_median_ms, significant),
    rowFigure('new ms', 'Median of the new samples', (row) => row.new_median_ms, significant),
    rowFigure('medians', 'New median ÷ base median', (row) => row.median_ratio, factorText),
    rowFigure('ratio', 'New time ÷ base time, of lower quartiles', (row) => row.ratio, factorText),
    {...rowFigure('95% interval', 'Of the ratio', (row) => row.ratio_ci95_low), text: intervalText},
    rowFigure('÷ GEMM', 'The ratio in units of the GEMM in the same rounds', (row) => row.ratio_to_gemm, factorText),
    rowFigure('p', 'Of the change, after Holm’s correction', (row) => row.p_holm, (p) => p.toPrecision(2)),
    {...rowWords('reason', '', (row) => reasonText(row) || null), wide: true},
    rows.some((row) => row.load.length) && {...rowWords('load', 'Load, and what was compared because of it', (row) => row.load.join('; ') || null), wide: true},
  ].filter(Boolean);
}

// ---- an open row

// For each figure of the samples, the range of both sides and some room.
function sharedRanges(sides) {
  const ranges = {};
  for (const field of ['ms', 'sm_mhz', 'power_w']) {
    const values = sides.flatMap((side) => (side.samples && side.samples[field]) || []).filter(isFigure);
    const low = Math.min(...values), high = Math.max(...values);
    const room = 0.05 * (high - low) || 0.01 * high;
    if (values.length) ranges[field] = [low - room, high + room];
  }
  return ranges;
}

function sidePart(heading, side, ranges) {
  if (!side) return element('div', {}, element('h3', {}, heading), element('p', {class: 'note'}, 'Not in this result.'));
  return element('div', {}, element('h3', {}, `${heading}: ${side.status}`),
    side.reason && element('p', {class: 'bad'}, side.reason),
    side.samples && samplesPart(side, ranges),
    element('details', {}, element('summary', {}, 'Figures, errors and kernels'), figuresPart(side), checksPart(side), kernelsPart(side)));
}

function verdictPart(row) {
  const undisturbed = row.basis && row.load.length ? `${row.undisturbed_base_samples} in the base, ${row.undisturbed_new_samples} in the new result` : null;
  return element('div', {}, element('h3', {class: VERDICT_LOOKS[row.verdict]}, row.verdict), definitions([
    ['Case', row.case],
    ['Reason', row.reason],
    ['To decide it', row.needs],
    ['Ratio', isFigure(row.ratio) ? `${factorText(row.ratio)}, 95% interval ${intervalText(row)}` : null],
    ['In units of the GEMM', isFigure(row.ratio_to_gemm) ? factorText(row.ratio_to_gemm) : null],
    ['Medians', isFigure(row.median_ratio) ? `${significant(row.base_median_ms)} to ${significant(row.new_median_ms)} ms, ${factorText(row.median_ratio)}` : null],
    ['p after Holm’s correction', isFigure(row.p_holm) ? row.p_holm.toPrecision(2) : null],
    ['Compared', row.basis && {samples: 'all samples', undisturbed: 'undisturbed samples', processor: 'processor times'}[row.basis]],
    ['Load', row.load.join('; ')],
    ['Undisturbed samples', undisturbed],
  ]));
}

// The command of the new row; that of the base too, if it is another one.
function commandParts({base, now}) {
  if (!base || !now || base.command === now.command) return commandPart(now || base);
  return [commandPart(now, 'Repeat the new row'), commandPart(base, 'Repeat the base’s row')];
}

function comparisonDetails(row) {
  const ranges = sharedRanges([row.base, row.now].filter(Boolean));
  return [verdictPart(row),
          element('div', {class: 'columns'}, sidePart('Base', row.base, ranges), sidePart('New', row.now, ranges)),
          commandParts(row)].flat();
}
