// The page itself: shows the rows that rows.js chooses.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const form = document.getElementById("filters");
  const body = document.querySelector("#cases tbody");
  const more = document.getElementById("more");
  const STEP = 100;
  let rows = [];
  let shown = 0;
  let order = { key: "name", descending: false };

  function element(tag, properties, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(properties || {})) {
      if (name === "data") made.dataset.name = value;
      else made[name] = value;
    }
    made.append(...children);
    return made;
  }

  /** A case's name that may be broken at its separators. */
  function brokenName(name) {
    const code = element("code");
    for (const part of name.split(/(?<=[:;])/)) code.append(part, document.createElement("wbr"));
    return code;
  }

  function chip(cell) {
    const status = data.statuses[cell[STATUS]];
    const path = data.paths[cell[PATH]];
    const facts = [data.devices[cell[DEVICE]].label, path, status === "Pass" ? "" : status].filter(Boolean);
    const title = [status, path, cell[DIGEST], `${cell[SECONDS].toFixed(2)} s`, cell[MESSAGE]].filter(Boolean).join("\n");
    return element("span", { className: `chip ${status}`, title }, facts.join(" · "));
  }

  function line({ row, cells }) {
    const digests = digestsOf(cells);
    const differ = digests.length > 1;
    const name = element("td", {}, brokenName(row[NAME]));
    if (row[PROFILE] !== "device") name.append(" ", element("span", { className: "faint" }, `profile ${row[PROFILE]}`));
    return element(
      "tr", {},
      name,
      element("td", { data: "operator" }, data.operators[row[OPERATOR]]),
      element("td", { data: "types" }, data.types[row[TYPES]]),
      element("td", {}, element("div", { className: "chips" }, ...cells.map(chip))),
      element("td", { data: digests.length ? "digest" : "" },
        differ ? element("span", { className: "pill Fail" }, `${digests.length} digests`)
          : digests.length ? element("code", {}, digests[0]) : ""),
    );
  }

  function showMore(count) {
    const next = rows.slice(shown, shown + count);
    body.append(...next.map(line));
    shown += next.length;
    more.hidden = shown >= rows.length;
    document.getElementById("count").textContent =
      `${rows.length.toLocaleString("en")} of ${data.rows.length.toLocaleString("en")} cases` +
      (shown < rows.length ? `, the first ${shown.toLocaleString("en")} shown` : "");
  }

  function matrixCard({ operator, paths, rows: lines }) {
    const heading = element("tr", {}, element("th", {}), ...paths.map((path) => element("th", {}, path)));
    const table = element("table", { className: "matrix" }, element("thead", {}, heading), element("tbody"));
    for (const { device, counts } of lines) {
      const tr = element("tr", {}, element("th", { scope: "row" }, data.devices[device].label));
      counts.forEach((count, k) => {
        const td = element("td");
        if (count) {
          const status = data.statuses[data.worst.find((each) => count[each])];
          const title = count.map((each, status) => each && `${each} ${data.statuses[status]}`).filter(Boolean).join(", ");
          td.append(element("span", { className: status, title, data: paths[k] }, countText(data, count)));
        }
        tr.append(td);
      });
      table.tBodies[0].append(tr);
    }
    const wide = paths.length > 3 ? " wide" : "";
    return element("div", { className: `card${wide}` }, element("h3", {}, operator), table);
  }

  function update() {
    const filter = Object.fromEntries(new FormData(form));
    const left = leftRows(data, filter);
    rows = sortedRows(data, left, order.key, order.descending);
    shown = 0;
    body.replaceChildren();
    showMore(STEP);
    document.getElementById("matrices").replaceChildren(...matricesOf(data, left).map(matrixCard));
    for (const row of document.querySelectorAll("#devices tbody tr")) {
      row.hidden = Boolean(filter.vendor) && row.dataset.vendor !== filter.vendor;
    }
  }

  function mark(heading, descending) {
    for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  }

  for (const heading of document.querySelectorAll("#cases th")) {
    heading.querySelector("button").addEventListener("click", () => {
      const key = heading.dataset.key;
      order = { key, descending: order.key === key && !order.descending };
      form.elements.order.value = key;
      mark(heading, order.descending);
      update();
    });
  }

  const devices = document.querySelectorAll("#devices th");
  devices.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      const descending = heading.getAttribute("aria-sort") === "ascending";
      const value = (row) => row.children[column].dataset.value ?? row.children[column].textContent;
      const bodyOfDevices = document.querySelector("#devices tbody");
      const compare = new Intl.Collator("en", { numeric: true }).compare;
      const sorted = [...bodyOfDevices.rows].sort((a, b) => compare(value(a), value(b)) * (descending ? -1 : 1));
      bodyOfDevices.append(...sorted);
      mark(heading, descending);
    });
  });

  form.addEventListener("input", () => {
    const key = form.elements.order.value;
    if (key !== order.key) {
      order = { key, descending: false };
      const heading = document.querySelector(`#cases th[data-key="${key}"]`);
      if (heading) mark(heading, false);
    }
    update();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => {
    order = { key: "name", descending: false };
    update();
  }));
  more.addEventListener("click", () => showMore(STEP));
  update();
})();
