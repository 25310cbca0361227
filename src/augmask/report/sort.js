"use strict";
// Pointing at a cell of a matrix writes both columns and the value above it.
for (const matrix of document.querySelectorAll(".matrix")) {
  const { names, values } = JSON.parse(matrix.dataset.cells);
  const [left, top, width, height] = JSON.parse(matrix.dataset.box);
  const readout = matrix.closest("figure").querySelector(".readout");
  const before = readout.textContent;
  const read = (event) => {
    const box = matrix.querySelector("svg").getBoundingClientRect();
    const place = (x, start, size, low, share) =>
      Math.floor(((x - start) / size - low) / share * names.length);
    const j = place(event.clientX, box.left, box.width, left, width);
    const i = place(event.clientY, box.top, box.height, top, height);
    const inside = names[i] !== undefined && names[j] !== undefined;
    const value = inside ? values[i][j] : undefined;
    readout.textContent = inside
      ? `${names[i]} with ${names[j]}: ${value === null ? "–" : value.toFixed(2)}`
      : before;
  };
  matrix.addEventListener("pointermove", read);
  matrix.addEventListener("pointerdown", read);
  matrix.addEventListener("pointerleave", () => { readout.textContent = before; });
}
// A click on a column head sorts its table; a second click turns the order round.
for (const table of document.querySelectorAll("table.sort")) {
  const body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((head, k) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    // On a narrow page a row is a list of its cells, each with its head.
    for (const row of body.rows) row.cells[k].dataset.head = button.textContent;
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[k].dataset.v ?? row.cells[k].textContent.trim();
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        const [p, q] = [Number(x), Number(y)];
        const numbers = x !== "" && y !== "" && !Number.isNaN(p) && !Number.isNaN(q);
        return (up ? 1 : -1) * (numbers ? p - q : x.localeCompare(y));
      });
      body.append(...rows);
    });
  });
}
