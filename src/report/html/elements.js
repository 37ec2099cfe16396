// Elements from text alone: nothing that comes from a file is ever parsed as HTML.

// element('td', {class: 'figure', onclick: f}, 'text', otherElement). Absent attributes and children
// (null, undefined, false) are left out.
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) made.append(child);
  }
  return made;
}

// [[name, text or element]] as a list of definitions; absent ones are left out.
function definitions(pairs) {
  return element('dl', {}, pairs
    .filter(([, value]) => value !== null && value !== undefined && value !== '')
    .map(([name, value]) => [element('dt', {}, name), element('dd', {}, value)]).flat());
}

function byId(id) {
  return document.getElementById(id);
}

// A colour of the page, as it is in the light or dark style of now: pageColour('--muted').
function pageColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
