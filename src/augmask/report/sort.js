"use strict";
// A click on a column head sorts its table; a second click turns the order round.
for (const table of document.querySelectorAll("table.sort")) {
  const body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((head, k) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
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
