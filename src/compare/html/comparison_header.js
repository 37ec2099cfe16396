// What was compared and what came of it: above the table the verdicts, below it the conditions and the rule.

function sideLine(side, result) {
  const {version, git_commit: commit, started} = result.meta;
  return element('p', {}, element('b', {}, side), ' ', element('code', {}, result.file),
    ` · flashbench ${wordsOf(version) || 'unknown'} (${(wordsOf(commit) || 'unknown').slice(0, 12)}) · ${wordsOf(started) || 'unknown'} · `,
    result.devices.map((device) => wordsOf(device.name)).join(', '),
    result.summary.filter((line) => line.startsWith('warning')).map((line) => element('span', {class: 'warn'}, ` · ${line}`)));
}

function outcome({regressed, counts, rows}) {
  const wrong = counts.SLOWER + counts.NEWLY_WRONG;
  return element('p', {class: regressed ? 'bad' : null}, element('strong', {}, regressed
    ? `${wrong} of the ${rows.length} rows ${wrong === 1 ? 'is' : 'are'} SLOWER or NEWLY_WRONG.`
    : `None of the ${rows.length} rows is SLOWER or NEWLY_WRONG.`));
}

// A button for each verdict that there is: `showOnly(verdict)`.
function verdictButtons(counts, showOnly) {
  const there = Object.entries(counts).filter(([, count]) => count > 0);
  return element('div', {class: 'choices', role: 'group', 'aria-label': 'Show only the rows of one verdict'},
    there.map(([verdict, count]) => element('button', {type: 'button', class: VERDICT_LOOKS[verdict], title: 'Show only these rows',
                                                       onclick: () => showOnly(verdict)}, `${count} ${verdict}`)));
}

function differenceText({key, base, new: now}) {
  return `compared although ${key} differs: "${base}" in the base, "${now}" in the new result`;
}

function showHeader({results, comparison}, showOnly) {
  const names = [...new Set(results.map((result) => wordsOf(result.config.name) || result.file))];
  byId('title').textContent = `${names.join(', ')}: comparison`;
  document.title = `${names.join(', ')} – flashbench compare`;
  const means = Object.entries(comparison.geometric_mean_ratios);
  byId('results').append(...[
    outcome(comparison), verdictButtons(comparison.counts, showOnly), sideLine('base', results[0]), sideLine('new', results[1]),
    element('ul', {},
      comparison.differences.map((difference) => element('li', {class: 'warn'}, differenceText(difference))),
      means.map(([provider, {ratio, rows}]) => element('li', {},
        `${provider}: ${factorText(ratio)}× the base’s time (geometric mean of ${rows} ${rows === 1 ? 'row' : 'rows'})`))),
  ]);
}

function showConditions({conditions}) {
  byId('environment').prepend(innerTable('What must be the same', ['condition', 'base', 'new', ''].map(wordsColumn),
    conditions.map(({key, base, new: now}) => [key.replaceAll('_', ' '), base || DASH, now || DASH, base === now ? '' : 'differs'])));
}

function showRule({options}) {
  const percent = (fraction) => `${Number((fraction * 100).toPrecision(4))}%`;
  byId('noise-threshold').textContent = percent(options.noise_threshold);
  byId('significance').textContent = percent(options.significance);
  byId('same-within').textContent = percent(sameWithin(options));
}

// The range of SAME.
function sameWithin(options) {
  return Math.max(options.same_within, options.noise_threshold);
}
