// The rows of a comparison: the verdict and its figures, and the rows of both sides.

const NEWLY_WRONG = 'NEWLY_WRONG';

function sideRows(result, side) {
  return collectRows([result]).map((row) => ({...row, line: `${row.provider}, ${side}`}));
}

function comparisonRows({axes, results, comparison}) {
  const base = sideRows(results[0], 'base'), now = sideRows(results[1], 'new');
  return comparison.rows.map((row, id) => {
    const sides = {base: base[row.base] || null, now: now[row.new] || null};
    const either = sides.now || sides.base;
    const ofCase = Object.fromEntries(['case', 'device', 'kernel', ...axes].map((name) => [name, either[name]]));
    return {...ofCase, ...row, ...sides, id, line: row.provider};
  });
}

// A ratio, as the table on the console has it.
function factorText(ratio) {
  return ratio < 10 ? ratio.toFixed(3) : significant(ratio);
}

function intervalText(row) {
  return isFigure(row.ratio_ci95_low) ? `${factorText(row.ratio_ci95_low)} to ${factorText(row.ratio_ci95_high)}` : DASH;
}

// Reason, and what would decide the row.
function reasonText(row) {
  return [row.reason, row.needs && `to decide it: ${row.needs}`].filter(Boolean).join('; ');
}

const VERDICT_LOOKS = {SLOWER: 'bad', NEWLY_WRONG: 'bad', FASTER: 'good', FIXED: 'good', INCONCLUSIVE: 'warn', MISSING: 'warn'};

// The colour of a verdict, in charts too: what did not change stays in the background.
function verdictColour(verdict) {
  const look = VERDICT_LOOKS[verdict];
  return pageColour(look && verdict !== 'INCONCLUSIVE' ? `--${look}` : '--muted');
}
