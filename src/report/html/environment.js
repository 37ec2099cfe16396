// Where and with what each result was made.

function countWithUnit(value) {
  return isFigure(value) ? bytesText(value) : null;
}

function wordsOf(value) {
  if (value === null || value === undefined) return null;
  if (Array.isArray(value)) return value.map(wordsOf).join(' ');
  if (typeof value === 'object') return Object.entries(value).map(([name, one]) => `${name} ${wordsOf(one)}`).join('; ');
  return String(value);
}

// {name: value} of a file, as it is: newer and older files say more and less.
function factsOf(json) {
  return Object.entries(json).map(([name, value]) =>
    [name.replaceAll('_', ' '), name.endsWith('_bytes') ? countWithUnit(value) : wordsOf(value)]);
}

function ceilingsTable(ceilings) {
  return innerTable('Ceilings, measured in the same way', [wordsColumn('ceiling'), figureColumn('rate'), wordsColumn('measured by')],
    ceilings.map((ceiling) => [ceiling.name, `${significant(ceiling.rate * 1e-9)} G${ceiling.unit}`, ceiling.description]));
}

const RULES = ['flop_rule', 'byte_rule'];

function environmentOf(result) {
  const {beside = [], shards = [], shard, ...meta} = result.meta;
  for (const rule of RULES) delete meta[rule];
  return element('section', {}, element('h3', {}, result.file),
    definitions(factsOf(meta)),
    shard && element('p', {class: 'note'}, `shard ${wordsOf(shard.number)} of ${wordsOf(shard.count)} of the sweep`),
    shards.map((part) => element('p', {class: 'note'}, `shard ${wordsOf(part.file)}: started ${wordsOf(part.meta?.started)}`)),
    result.devices.map((device) => [element('h3', {}, wordsOf(device.name) || 'Device'), definitions(factsOf(device))]).flat(),
    result.ceilings.length > 0 && ceilingsTable(result.ceilings),
    beside.map((other) => element('p', {class: 'note'}, `with rows of ${wordsOf(other.file)}: ${wordsOf(other.meta)}`)),
    element('details', {}, element('summary', {}, 'Config'), element('pre', {}, JSON.stringify(result.config, null, 1))));
}

function showEnvironment(results) {
  byId('environment').append(element('div', {class: 'environments'}, results.map(environmentOf)));
  for (const rule of RULES) {
    const texts = new Set(results.map((result) => result.meta[rule]).filter(Boolean));
    for (const text of texts) byId('rules').append(element('dt', {}, rule.replace('_', ' ')), element('dd', {}, wordsOf(text)));
  }
}
