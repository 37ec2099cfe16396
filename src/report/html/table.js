// The table of all rows: sorted by any column, searched, each row opens.

// `value` is what sorts, `text` what is shown.
function tableColumns(rows) {
  const figure = (title, hint, valueOf, text) => ({title, hint, valueOf, text: (row) => orDash(valueOf(row), text), figure: true});
  const words = (title, hint, valueOf) => ({title, hint, valueOf, text: (row) => String(valueOf(row) ?? DASH)});
  const has = (name) => rows.some((row) => isFigure(row[name]));
  const rate = rateUnit(rows);
  return [
    distinct(rows, (row) => row.file) > 1 && words('file', 'The result file', (row) => row.file),
    words('pass', '', (row) => row.pass),
    words('dtype', '', (row) => row.dtype),
    words('mask', '', (row) => row.mask),
    figure('batch', '', (row) => row.batch, String),
    {...figure('heads', 'Query heads, or query heads/K and V heads', (row) => row.q_heads, String), text: headsText},
    figure('q_len', '', (row) => row.q_len, String),
    figure('kv_len', '', (row) => row.kv_len, String),
    figure('d', 'head_dim', (row) => row.head_dim, String),
    words('status', '', (row) => row.status),
    words('verdict', 'Of the check against the fp64 reference', (row) => row.verified),
    figure('median ms', 'Median of the samples', (row) => row.median_ms, significant),
    figure('± %', 'Half the width of the 95% interval, in percent of the median', halfWidth, (value) => value.toFixed(1)),
    figure(rate.unit, 'FLOPs of the unmasked pairs per second', (row) => (isFigure(row.tflops) ? row.tflops * rate.scale : null), significant),
    figure('% gemm', 'FLOP/s over those of a large GEMM in the same rounds', (row) => row.pct_of_ceiling, percentText),
    has('pct_of_peak') && figure('% peak', 'FLOP/s over the peak at the measured SM clock', (row) => row.pct_of_peak, percentText),
    has('speedup_vs_naive') && figure('× naive', 'Speed-up over naive on the same case', (row) => row.speedup_vs_naive, significant),
    figure('peak memory', 'Inputs, outputs and workspace', (row) => row.peak_bytes, bytesText),
    figure('requested', 'Bytes that the loops read and write', (row) => row.bytes_requested, bytesText),
    has('bytes_measured') && figure('measured', 'Device memory traffic, by hardware counters', (row) => row.bytes_measured, bytesText),
    figure('FLOP/byte', 'Of the measured bytes, else of those requested', (row) => row.intensity, significant),
    has('rel_rms_err') && figure('rel rms', 'Norm of the error over the norm of the exact values', (row) => row.rel_rms_err, exponential),
    figure('max err', 'Largest absolute error', (row) => row.max_abs_err, exponential),
    figure('λ', 'Worst error in units of the rounding-error bound', (row) => row.lambda, significant),
    has('sm_mhz') && figure('SM MHz', 'Median over the samples', (row) => row.sm_mhz, String),
    has('power_w') && figure('W', 'Median over the samples', (row) => row.power_w, significant),
    has('throttled') && figure('throttled %', 'Share of samples after which the clock was held down', (row) => (isFigure(row.throttled) ? row.throttled * 100 : null), significant),
    {...words('kernel', '', (row) => row.kernel), wide: true},
    {...words('reason or note', '', (row) => row.reason || row.notes), wide: true},
  ].filter(Boolean);
}

const VERDICT_LOOKS = {passed: 'good', sampled: 'good', coarse: 'warn', failed: 'bad'};
const STATUS_LOOKS = {ok: null, failed: 'bad', crashed: 'bad', timeout: 'bad', error: 'bad', out_of_memory: 'warn'};

function cellLook(column, row) {
  const looks = {status: STATUS_LOOKS[row.status], verdict: VERDICT_LOOKS[row.verified]};
  return [column.figure && 'figure', column.wide && 'reason', looks[column.title]].filter(Boolean).join(' ') || null;
}

// A row of the table, and the one below it that shows its details while it is open.
class TableRow {
  constructor(row, columns) {
    this.row = row;
    this.cells = columns.map((column) => column.text(row));
    this.searched = [row.provider, row.case, row.kernel, row.file, row.reason, row.notes, ...this.cells].join(' ').toLowerCase();
    this.button = element('button', {type: 'button', class: 'open', 'aria-expanded': 'false', onclick: () => this.toggle()}, row.provider);
    this.node = element('tr', {}, element('th', {scope: 'row'}, this.button),
      columns.map((column, i) => element('td', {class: cellLook(column, row)}, this.cells[i])));
    this.details = null;
  }

  nodes() {
    return this.details ? [this.node, this.details] : [this.node];
  }

  toggle(open = !this.details) {
    if (open === Boolean(this.details)) return;
    this.button.setAttribute('aria-expanded', String(open));
    if (open) {
      const width = this.node.closest('.scroll').clientWidth;
      this.details = element('tr', {class: 'details', id: `row-${this.row.id}`},
        element('td', {colspan: String(this.node.children.length), style: `--seen-width: ${width}px`}, rowDetails(this.row)));
      this.button.setAttribute('aria-controls', this.details.id);
      this.node.after(this.details);
    } else {
      this.details.remove();
      this.details = null;
      this.button.removeAttribute('aria-controls');
    }
  }
}

// Absent figures come last in either order.
function comparison(valueOf, descending) {
  const absent = (value) => value === null || value === undefined;
  return (a, b) => {
    const left = valueOf(a.row), right = valueOf(b.row);
    if (absent(left) || absent(right)) return absent(left) - absent(right);
    const order = isFigure(left) && isFigure(right) ? left - right : String(left).localeCompare(String(right));
    return descending ? -order : order;
  };
}

let tableRows = [];

// Opens the row in the table and goes there.
function showRow(row) {
  const tableRow = tableRows[row.id];
  if (tableRow.node.hidden) return;
  tableRow.toggle(true);
  tableRow.node.scrollIntoView({block: 'center'});
  tableRow.button.focus({preventScroll: true});
}

// Returns `show(keeps)`, which leaves the rows that are kept and that the search finds.
function makeTable(rows) {
  const columns = tableColumns(rows);
  const body = byId('table').tBodies[0];
  tableRows = rows.map((row) => new TableRow(row, columns));
  const headings = [{title: 'provider', valueOf: (row) => row.provider, hint: ''}, ...columns].map((column) => {
    const heading = element('th', {scope: 'col', class: column.figure && 'figure', 'aria-sort': 'none'},
      element('button', {type: 'button', title: column.hint || null, onclick: () => sortBy(column, heading)}, column.title));
    return heading;
  });
  byId('table').tHead.append(element('tr', {}, headings));

  const sortBy = (column, heading) => {
    const descending = heading.getAttribute('aria-sort') === 'ascending';
    for (const other of headings) other.setAttribute('aria-sort', 'none');
    heading.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
    const sorted = [...tableRows].sort(comparison(column.valueOf, descending));
    body.replaceChildren(...sorted.flatMap((row) => row.nodes()));
  };
  body.append(...tableRows.flatMap((row) => row.nodes()));

  let kept = () => true;
  const show = (keeps = kept) => {
    kept = keeps;
    const words = byId('search').value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of tableRows) {
      const visible = keeps(row.row) && words.every((word) => row.searched.includes(word));
      if (!visible) row.toggle(false);
      row.node.hidden = !visible;
      shown += visible ? 1 : 0;
    }
    byId('row-count').textContent = `${shown} of ${rows.length} rows`;
  };
  byId('search').addEventListener('input', () => show());
  return show;
}
