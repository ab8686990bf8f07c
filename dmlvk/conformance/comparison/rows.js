// The rows of the page: which of them a filter leaves, in which order, and how many there are of each kind. Plain
// functions of plain data, which know nothing of the page.
//
// data: {devices: [{label, vendor}], statuses: [name], good: [bool], operators: [name], types: [text], paths: [name],
//        rows: [[name, profile, operator, types, [cell]]]}
// cell: [device, status, path, digest, seconds, message]; all but the last three are indices, and so are a row's
//       operator and types.
// filter: {text, operator, type, path, vendor, status}; an empty member lets everything through. A status is a name, or
//       "bad" (neither good nor supported), or "differs" (a row with several digests).
"use strict";

const NAME = 0, PROFILE = 1, OPERATOR = 2, TYPES = 3, CELLS = 4;
const DEVICE = 0, STATUS = 1, PATH = 2, DIGEST = 3, SECONDS = 4, MESSAGE = 5;

/** The cells of a row that a filter leaves; an empty list if the row is not to be shown. */
function leftCells(data, row, filter) {
  if (filter.operator && data.operators[row[OPERATOR]] !== filter.operator) return [];
  if (filter.type && !data.types[row[TYPES]].split(" ").includes(filter.type)) return [];
  const name = `${row[NAME]} ${row[PROFILE]}`.toLowerCase();
  const words = (filter.text || "").toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.every((word) => name.includes(word))) return [];
  if (filter.status === "differs" && digestsOf(row[CELLS]).length < 2) return [];
  return row[CELLS].filter((cell) => {
    if (filter.vendor && data.devices[cell[DEVICE]].vendor !== filter.vendor) return false;
    if (filter.path && data.paths[cell[PATH]] !== filter.path) return false;
    if (filter.status === "bad") return !data.good[cell[STATUS]];
    if (filter.status && filter.status !== "differs") return data.statuses[cell[STATUS]] === filter.status;
    return true;
  });
}

/** The rows that a filter leaves, each with the cells that it leaves. */
function leftRows(data, filter) {
  const left = [];
  for (const row of data.rows) {
    const cells = leftCells(data, row, filter);
    if (cells.length) left.push({ row, cells, place: left.length });
  }
  return left;
}

/** The digests of some cells, each once. */
function digestsOf(cells) {
  return [...new Set(cells.map((cell) => cell[DIGEST]).filter(Boolean))];
}

const KEYS = {
  name: (data, { place }) => place,
  operator: (data, { row }) => data.operators[row[OPERATOR]],
  types: (data, { row }) => data.types[row[TYPES]],
  // Bad results first, then few devices before many.
  devices: (data, { cells }) => -1000 * cells.filter((cell) => !data.good[cell[STATUS]]).length + cells.length,
  digest: (data, { cells }) => -digestsOf(cells).length,
  seconds: (data, { cells }) => -Math.max(...cells.map((cell) => cell[SECONDS])),
};

/** The same rows in the order of a key: rows that are equal in it stay in the order of the cases. */
function sortedRows(data, rows, key, descending) {
  const value = KEYS[key];
  const sign = descending ? -1 : 1;
  const keyed = rows.map((each) => [value(data, each), each]);
  keyed.sort(([a, one], [b, other]) => (a < b ? -sign : a > b ? sign : one.place - other.place));
  return keyed.map(([, each]) => each);
}

/** For each operator its paths, and for each device and path the number of results of each status. */
/* The kernel path by which matrices count, without the tile and the shares: "matrix" of "matrix:64x64x64/4". */
function columnOf(path) {
  return path.split(/[:/]/)[0] || "any";
}

function matricesOf(data, rows) {
  const found = new Map();
  for (const { row, cells } of rows) {
    const operator = data.operators[row[OPERATOR]];
    if (!found.has(operator)) found.set(operator, { operator, paths: new Set(), devices: new Map() });
    const matrix = found.get(operator);
    for (const cell of cells) {
      const path = columnOf(data.paths[cell[PATH]]);
      matrix.paths.add(path);
      if (!matrix.devices.has(cell[DEVICE])) matrix.devices.set(cell[DEVICE], new Map());
      const counts = matrix.devices.get(cell[DEVICE]);
      if (!counts.has(path)) counts.set(path, data.statuses.map(() => 0));
      counts.get(path)[cell[STATUS]] += 1;
    }
  }
  return [...found.values()]
    .sort((a, b) => (a.operator < b.operator ? -1 : 1))
    .map(({ operator, paths, devices }) => {
      const columns = [...paths].sort();
      const lines = [...devices.keys()].sort((a, b) => a - b).map((device) => ({
        device,
        counts: columns.map((path) => devices.get(device).get(path) || null),
      }));
      return { operator, paths: columns, rows: lines };
    });
}

/** The text of some counts: "37" passed, "2 of 37" are bad, or a dash if none was supported. */
function countText(data, counts) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  const bad = counts.reduce((sum, count, status) => sum + (data.good[status] ? 0 : count), 0);
  if (bad) return `${bad} of ${total}`;
  return String(total - counts[data.statuses.indexOf("NotSupported")] || "–");
}
