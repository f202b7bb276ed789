// Values of the charts under the pointer, and with the arrow keys on a focused chart. Without this
// script the same values are in the table below each chart.
"use strict";
for (const data of document.querySelectorAll(".readout-data")) {
  const figure = data.closest("figure");
  const { span: [from, to], panels } = JSON.parse(data.textContent);
  const box = document.createElement("div");
  box.className = "readout";
  box.setAttribute("role", "status");
  box.hidden = true;
  figure.append(box);
  figure.querySelector("figcaption").append(
    " Point at the chart for values, or focus it and use the arrow keys.");
  for (const svg of figure.querySelectorAll("svg")) attach(svg);

  function attach(svg) {
    const hits = [...svg.querySelectorAll(".hit")];
    const areas = hits.map((hit) =>
      Object.fromEntries(["x", "y", "width", "height"].map((side) =>
        [side, Number(hit.getAttribute(side))])));
    const marks = [];
    let at = (from + to) / 2;
    let which = 0;

    function mark(kind, x, y, width, height) {
      const rect = hits[0].cloneNode();
      const sides = { class: kind, x, y, width, height };
      for (const [name, value] of Object.entries(sides)) rect.setAttribute(name, value);
      svg.append(rect);
      marks.push(rect);
      return rect;
    }

    function hide() {
      box.hidden = true;
      for (const rect of marks.splice(0)) rect.remove();
    }

    function show() {
      hide();
      const area = areas[which];
      const panel = panels[which];
      const x = area.x + (at - from) / (to - from) * area.width;
      for (const { y, height } of areas) mark("cursor", x - 0.5, y, 1, height);
      const head = document.createElement("b");
      head.textContent = [panel.name, at.toFixed(to - from > 200 ? 0 : 2) + " s"]
        .filter((part) => part).join(", ");
      box.replaceChildren(head);
      for (const series of panel.series) {
        const { text, value } = lookUp(series, at, panel);
        row(series, text);
        if (value === null || !series.colour) continue;
        const share = (value - panel.range[0]) / (panel.range[1] - panel.range[0]);
        if (share < 0 || share > 1) continue;
        const y = area.y + area.height * (1 - share);
        mark("spot " + series.colour, x - 3.5, y - 3.5, 7, 7).setAttribute("rx", 3.5);
      }
      box.hidden = false;
      place();
    }

    function row(series, text) {
      const colour = document.createElement("i");
      colour.className = series.colour;
      const name = document.createElement("span");
      name.textContent = series.name;
      const value = document.createElement("span");
      value.textContent = text;
      box.append(colour, name, value);
    }

    // Beside the cursor, on the side with more space.
    function place() {
      const whole = figure.getBoundingClientRect();
      const hit = hits[which].getBoundingClientRect();
      const x = hit.left + (at - from) / (to - from) * hit.width - whole.left;
      const left = x < whole.width / 2 ? x + 14 : x - 14 - box.offsetWidth;
      box.style.left = Math.max(0, Math.min(left, whole.width - box.offsetWidth)) + "px";
      box.style.top = hit.top - whole.top + 4 + "px";
    }

    function point(event) {
      const over = hits.indexOf(event.target);
      if (over < 0) return hide();
      const hit = hits[over].getBoundingClientRect();
      const share = (event.clientX - hit.left) / hit.width;
      which = over;
      at = from + Math.max(0, Math.min(1, share)) * (to - from);
      show();
    }

    function key(event) {
      const step = (to - from) / (event.shiftKey ? 20 : 200);
      const moves = {
        ArrowLeft: () => { at -= step; },
        ArrowRight: () => { at += step; },
        Home: () => { at = from; },
        End: () => { at = to; },
        ArrowUp: () => { which -= 1; },
        ArrowDown: () => { which += 1; },
      };
      if (event.key === "Escape") return hide();
      if (!Object.hasOwn(moves, event.key)) return;
      moves[event.key]();
      at = Math.max(from, Math.min(to, at));
      which = Math.max(0, Math.min(hits.length - 1, which));
      event.preventDefault();
      show();
    }

    if (hits.length === 0) return;
    svg.tabIndex = 0;
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("keydown", key);
    svg.addEventListener("blur", hide);
  }
}

// Text of a series at a time, and its value for a mark on the drawing or null.
function lookUp(series, at, { unit, digits }) {
  const none = { text: "–", value: null };
  const written = (value) => unit ? value.toFixed(digits) + " " + unit : value.toFixed(digits);
  if (series.lines) {
    const line = series.lines.find((points) => points.length && at <= points.at(-1)[0]);
    const next = line ? line.findIndex((point) => point[0] >= at) : -1;
    if (next < 0 || (next === 0 && line[0][0] > at)) return none;
    const [right, top] = line[next];
    const [left, low] = line[Math.max(0, next - 1)];
    const value = right > left ? low + (at - left) / (right - left) * (top - low) : top;
    return { text: written(value), value };
  }
  if (series.dots) {
    const { reach, states, points } = series.dots;
    let nearest = null;
    for (const dot of points) {
      if (!nearest || Math.abs(dot[0] - at) < Math.abs(nearest[0] - at)) nearest = dot;
    }
    if (!nearest || Math.abs(nearest[0] - at) > reach) return none;
    const [, value, state] = nearest;
    const number = value === null ? "" : written(value);
    return { text: [number, states[state]].filter((part) => part).join(" "), value };
  }
  const span = series.spans.findLast(([begin, end]) => begin <= at && at < end);
  return span ? { text: span[2], value: null } : none;
}
