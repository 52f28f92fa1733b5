/* Small line charts over time; one point a look, nothing is kept beyond the page. */

"use strict";

const SglCharts = (() => {
  const KEPT = 240;
  const SVG = "http://www.w3.org/2000/svg";

  function svg(tag, attributes) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }

  /* A chart of one or two series. `top`: the scale's end, or null for the largest value seen. */
  function chart(title, names, format, top) {
    const series = names.map(() => []);
    const now = document.createElement("span");
    const heading = document.createElement("h3");
    heading.append(title, now);
    const picture = svg("svg", { viewBox: "0 0 240 90", preserveAspectRatio: "none", role: "img" });
    for (const y of [1, 45, 89]) picture.append(svg("line", { class: "grid", x1: 0, x2: 240, y1: y, y2: y }));
    const paths = names.map((_, index) => svg("path", { class: `s${index}` }));
    picture.append(...paths);
    const element = document.createElement("div");
    element.className = "card chart";
    element.append(heading, picture);

    function push(values) {
      values.forEach((value, index) => {
        series[index].push(value);
        if (series[index].length > KEPT) series[index].shift();
      });
      const most = top || Math.max(1e-9, ...series.flat());
      paths.forEach((path, index) => {
        const points = series[index];
        const x = (at) => 240 - (points.length - 1 - at) * (240 / (KEPT - 1));
        path.setAttribute("d", points.map((value, at) => `${at ? "L" : "M"}${x(at).toFixed(2)} ${(88 - 86 * Math.min(value / most, 1)).toFixed(2)}`).join(""));
      });
      now.replaceChildren(
        ...names.flatMap((name, index) => {
          const label = document.createElement("span");
          label.className = `key-s${index}`;
          label.textContent = `${name ? `${name} ` : ""}${format(values[index])}`;
          return index ? [" ", label] : [label];
        }),
      );
      picture.setAttribute("aria-label", `${title}: ${names.map((name, index) => `${name} ${format(values[index])}`).join(", ")}`);
    }

    return { element, push };
  }

  return { chart };
})();
