"use strict";
// Tables sort by a click on a heading; everything else works without this.
const said = document.getElementById("said");

function key(row, column) {
  const cell = row.cells[column];
  return cell.dataset.key === "" ? null : Number(cell.dataset.key);
}

function order(column, sign) {
  return (one, other) => {
    const [a, b] = [key(one, column), key(other, column)];
    if (a !== null && b !== null) return sign * (a - b);
    if (a !== null || b !== null) return a === null ? 1 : -1; // without a number: last, either way
    return sign * one.cells[column].textContent.localeCompare(other.cells[column].textContent, "en", { numeric: true });
  };
}

for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = heading.querySelector("button");
    button.disabled = false;
    button.addEventListener("click", () => {
      const rising = heading.ariaSort !== "ascending";
      headings.forEach((each) => each.setAttribute("aria-sort", "none"));
      heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort(order(column, rising ? 1 : -1)));
      said.textContent = `Sorted by ${button.textContent}, ${heading.ariaSort}`;
    });
  });
}

window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
