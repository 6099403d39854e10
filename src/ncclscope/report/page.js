// What makes a report interactive. The page is whole without it. Text of a capture gets into the
// page by textContent only.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();

  // ---- tables: a click on a heading sorts ----
  const value = (cell) => (cell.dataset.n === undefined ? null : Number(cell.dataset.n));
  const compare = (a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x !== null && y !== null) return x - y;
    if (x !== null || y !== null) return x !== null ? 1 : -1; // what is not known comes last
    return a.textContent.localeCompare(b.textContent, undefined, { numeric: true });
  };
  const sort = (heading) => {
    const table = heading.closest("table");
    const place = heading.cellIndex;
    const rows = all("tbody tr", table);
    const numeric = rows.some((row) => value(row.cells[place]) !== null);
    const before = heading.getAttribute("aria-sort");
    const down = before ? before === "ascending" : numeric; // the largest first
    all("th", table).forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    rows.sort((a, b) => (down ? -1 : 1) * compare(a.cells[place], b.cells[place]));
    table.tBodies[0].append(...rows);
  };
  for (const heading of all("table.sortable th")) {
    heading.tabIndex = 0;
    heading.title = "sort by this column";
    heading.addEventListener("click", () => sort(heading));
    heading.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        sort(heading);
      }
    });
  }

  // ---- one filter for all tables and findings ----
  const field = document.getElementById("filter");
  const count = document.getElementById("filter-count");
  const rowText = (row) => `${row.closest("section").dataset.title} ${row.textContent}`.toLowerCase();
  const filter = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = all("table.sortable tbody tr, .finding");
    let shown = 0;
    for (const row of rows) {
      const text = rowText(row);
      const fits = words.every((word) => text.includes(word));
      row.hidden = !fits;
      shown += fits;
    }
    for (const section of all("section")) {
      const own = all("table.sortable tbody tr, .finding", section);
      section.hidden = words.length > 0 && !own.some((row) => !row.hidden);
    }
    count.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
  };
  if (field) {
    field.hidden = false;
    field.addEventListener("input", filter);
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && document.activeElement !== field) {
        event.preventDefault();
        field.focus();
      } else if (event.key === "Escape" && document.activeElement === field) {
        field.value = "";
        filter();
      }
    });
  }

  // ---- pictures on canvases ----
  const block = document.getElementById("pictures");
  const pictures = block ? JSON.parse(block.textContent) : {};
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);
  const hide = () => {
    tip.hidden = true;
  };
  const show = (event, lines) => {
    tip.replaceChildren(
      ...lines.map((line) => {
        const part = document.createElement("div");
        part.textContent = line;
        return part;
      }),
    );
    tip.hidden = false;
    const right = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    tip.style.left = `${right}px`;
    tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
  };
  const time = (us) =>
    us >= 1e6 ? `${(us / 1e6).toFixed(3)} s` : us >= 1e3 ? `${(us / 1e3).toFixed(2)} ms` : `${us.toFixed(1)} µs`;
  const LEFT = 64;
  const BELOW = 20;

  // A canvas as wide as its place, sharp on every screen; `draw` is called again when that changes.
  const canvasOf = (id, height, draw, lines) => {
    const place = document.getElementById(id);
    if (!place) return;
    const canvas = document.createElement("canvas");
    place.append(canvas);
    const paint = () => {
      const width = place.clientWidth;
      const scale = devicePixelRatio || 1;
      canvas.width = width * scale;
      canvas.height = height * scale;
      canvas.style.height = `${height}px`;
      const pen = canvas.getContext("2d");
      pen.scale(scale, scale);
      pen.font = "11px system-ui, sans-serif";
      draw(pen, width);
    };
    paint();
    new ResizeObserver(paint).observe(place);
    canvas.addEventListener("mousemove", (event) => {
      const box = canvas.getBoundingClientRect();
      const found = lines(event.clientX - box.left, event.clientY - box.top, box.width);
      if (found) show(event, found);
      else hide();
    });
    canvas.addEventListener("mouseleave", hide);
  };
  const label = (pen, text, x, y, align = "right") => {
    pen.fillStyle = colour("--dim");
    pen.textAlign = align;
    pen.textBaseline = "middle";
    pen.fillText(text, x, y);
  };
  const rankLabels = (pen, ranks, high) => {
    const every = Math.max(1, Math.ceil(14 / high));
    ranks.forEach((rank, row) => {
      if (row % every === 0) label(pen, `rank ${rank}`, LEFT - 6, (row + 0.5) * high);
    });
  };
  const timeLabels = (pen, width, y, began, length) => {
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      const align = share === 1 ? "right" : share === 0 ? "left" : "center";
      label(pen, time(began + share * length), LEFT + share * (width - LEFT), y, align);
    }
  };

  // Waiting and transfer of each rank over time, as strips of two colours.
  const slices = pictures.slices;
  if (slices) {
    const high = Math.max(4, Math.min(18, 400 / slices.ranks.length));
    const tall = high * slices.ranks.length;
    const cells = slices.waiting[0].length;
    const draw = (pen, width) => {
      const wide = (width - LEFT) / cells;
      slices.ranks.forEach((_, row) => {
        for (let cell = 0; cell < cells; cell++) {
          const parts = [
            [slices.moving[row][cell], "--c0"],
            [slices.waiting[row][cell], "--c1"],
          ];
          let bottom = (row + 1) * high - 1;
          for (const [percent, name] of parts) {
            const size = ((high - 1) * percent) / 100;
            pen.fillStyle = colour(name);
            pen.fillRect(LEFT + cell * wide, bottom - size, wide + 0.5, size);
            bottom -= size;
          }
        }
      });
      rankLabels(pen, slices.ranks, high);
      timeLabels(pen, width, tall + BELOW / 2, 0, slices.length_us);
    };
    canvasOf("slices", tall + BELOW, draw, (x, y, width) => {
      const row = Math.floor(y / high);
      const cell = Math.floor(((x - LEFT) / (width - LEFT)) * cells);
      if (row < 0 || row >= slices.ranks.length || cell < 0 || cell >= cells) return null;
      return [
        `rank ${slices.ranks[row]} at ${time((cell / cells) * slices.length_us)}`,
        `waiting ${slices.waiting[row][cell]} %`,
        `moving data ${slices.moving[row][cell]} %`,
      ];
    });
  }

  // From light to dark, for shares from 0 to 1.
  const shade = (share) => `hsl(${35 - 15 * share} 85% ${94 - 56 * share}%)`;
  const heat = (id, map, tell) => {
    if (!map) return;
    const rows = map.rows.length;
    const columns = map.columns.length;
    const high = Math.max(4, Math.min(22, 440 / rows));
    const tall = high * rows;
    const wideOf = (width) => Math.min(map.widest, (width - LEFT) / columns);
    const most = Math.max(...map.values.flat().map((n) => n ?? 0)) || 1;
    const draw = (pen, width) => {
      const wide = wideOf(width);
      map.values.forEach((values, row) => {
        values.forEach((number, column) => {
          if (number === null) return;
          pen.fillStyle = shade(number / most);
          pen.fillRect(LEFT + column * wide, row * high, wide - (wide > 6), high - (high > 6));
        });
      });
      rankLabels(pen, map.rows, high);
      const every = Math.max(1, Math.ceil(map.every / wide));
      map.columns.forEach((name, column) => {
        if (column % every === 0) label(pen, name, LEFT + (column + 0.5) * wide, tall + BELOW / 2, "center");
      });
    };
    canvasOf(id, tall + BELOW, draw, (x, y, width) => {
      const row = Math.floor(y / high);
      const column = Math.floor((x - LEFT) / wideOf(width));
      if (row < 0 || row >= rows || column < 0 || column >= columns) return null;
      return tell(map.rows[row], map.columns[column], map.values[row][column]);
    });
  };
  heat("functions", pictures.functions, (rank, name, share) => [
    `rank ${rank}, ${name}`,
    share === null ? "no time known" : `${share} % of its time waiting`,
  ]);
  const bytes = (n) => {
    const units = ["B", "KB", "MB", "GB", "TB", "PB"];
    const power = n > 0 ? Math.min(units.length - 1, Math.floor(Math.log10(n) / 3)) : 0;
    return `${(n / 1000 ** power).toFixed(power ? 2 : 0)} ${units[power]}`;
  };
  heat("pairs", pictures.pairs, (from, to, sent) => [
    `rank ${from} to rank ${to}`,
    sent === null ? "nothing" : bytes(sent),
  ]);

  // Operations one by one in a short stretch of time.
  const strip = pictures.strip;
  if (strip) {
    const high = 20;
    const tall = high * strip.ranks.length;
    const at = (us, width) => LEFT + (us / strip.length_us) * (width - LEFT);
    const draw = (pen, width) => {
      pen.save();
      pen.beginPath();
      pen.rect(LEFT, 0, width - LEFT, tall);
      pen.clip();
      for (const [row, start, wait, length, name] of strip.bars) {
        const [left, last] = [at(start, width), at(start + wait, width)];
        const right = Math.max(at(start + length, width), left + 1);
        pen.fillStyle = colour(`--c${strip.functions[strip.names[name][0]] % 8}`);
        pen.globalAlpha = 0.28; // of waiting
        pen.fillRect(left, row * high + 2, last - left, high - 4);
        pen.globalAlpha = 1;
        pen.fillRect(last, row * high + 2, Math.max(right - last, 1), high - 4);
      }
      pen.restore();
      rankLabels(pen, strip.ranks, high);
      timeLabels(pen, width, tall + BELOW / 2, strip.began_us, strip.length_us);
    };
    canvasOf("strip", tall + BELOW, draw, (x, y, width) => {
      const row = Math.floor(y / high);
      const us = ((x - LEFT) / (width - LEFT)) * strip.length_us;
      const slack = (2 / (width - LEFT)) * strip.length_us;
      const bar = strip.bars.find(
        ([own, start, , length]) => own === row && us >= start - slack && us <= start + length + slack,
      );
      if (!bar || x < LEFT) return null;
      const [functionName, size, communicator] = strip.names[bar[4]];
      return [
        `${functionName} ${size}, ${communicator}`,
        `rank ${strip.ranks[row]}, at ${time(strip.began_us + bar[1])}`,
        `${time(bar[3])}, of it waiting ${time(bar[2])}`,
      ];
    });
  }
})();
