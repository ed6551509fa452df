// A chart as a PNG: its title, its drawing, its legend and what is said of it.

import { make } from "./dom.js";

const [SIDE, LINE, MARK] = [24, 20, 26];

/** Save `chart` under `name`; `title` above it, `note` below it. */
export function save(chart, name, title, note) {
  const drawing = chart.plot.ctx.canvas;
  const scale = drawing.width / chart.plot.width;
  const width = chart.plot.width + 2 * SIDE;
  const canvas = make("canvas", {});
  const pen = canvas.getContext("2d");
  const font = chart.font.replace(/^\d+px/, "13px");
  pen.font = font;
  const notes = wrapped(pen, note, width - 2 * SIDE);
  const legend = rows(pen, chart.legend(), width - 2 * SIDE);
  const height = 56 + chart.plot.height + (legend.length + notes.length) * LINE + 30;
  [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
  pen.scale(scale, scale);
  pen.fillStyle = chart.ink("card");
  pen.fillRect(0, 0, width, height);
  pen.fillStyle = chart.ink("ink");
  pen.font = `600 ${font.replace("13px", "16px")}`;
  pen.fillText(title, SIDE, 32, width - 2 * SIDE);
  pen.drawImage(drawing, SIDE, 46, chart.plot.width, chart.plot.height);
  pen.font = font;
  let y = 46 + chart.plot.height + LINE;
  for (const row of legend) {
    for (const { x, text, stroke, dash } of row) {
      pen.strokeStyle = stroke;
      pen.lineWidth = 2;
      pen.setLineDash(dash);
      pen.beginPath();
      pen.moveTo(SIDE + x, y - 4);
      pen.lineTo(SIDE + x + MARK - 8, y - 4);
      pen.stroke();
      pen.fillStyle = chart.ink("ink");
      pen.fillText(text, SIDE + x + MARK, y);
    }
    y += LINE;
  }
  pen.fillStyle = chart.ink("soft");
  notes.forEach((line, place) => pen.fillText(line, SIDE, y + 6 + place * LINE));
  canvas.toBlob((blob) => {
    const address = URL.createObjectURL(blob);
    make("a", { href: address, download: `${name}.png` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  }, "image/png");
}

/** Legend entries in rows no wider than `width`. */
function rows(pen, entries, width) {
  const found = [[]];
  let x = 0;
  for (const entry of entries) {
    const wide = MARK + pen.measureText(entry.text).width + 18;
    if (x + wide > width && x > 0) {
      found.push([]);
      x = 0;
    }
    found.at(-1).push({ ...entry, x });
    x += wide;
  }
  return found;
}

function wrapped(pen, text, width) {
  const lines = [];
  for (const word of text.split(" ")) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && pen.measureText(longer).width <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}
