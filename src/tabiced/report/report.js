"use strict";
(() => {
  const table = document.getElementById("ranked");
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const search = document.getElementById("search");
  const shown = document.getElementById("shown");

  const key = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.sort ?? cell.textContent;
    const number = Number(text);
    return text.trim() !== "" && !Number.isNaN(number) ? number : text;
  };

  heads.forEach((head, column) => {
    head.firstElementChild.addEventListener("click", () => {
      const ascending = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const rows = [...body.rows].map((row) => [key(row, column), row]);
      rows.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0) * (ascending ? 1 : -1));
      body.append(...rows.map(([, row]) => row));
    });
  });

  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      count += row.hidden ? 0 : 1;
    }
    shown.textContent = `${count} of ${body.rows.length} rows`;
  };
  search.addEventListener("input", filter);
  filter();
})();
