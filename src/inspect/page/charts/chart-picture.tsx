/** A chart as an image, with its title and its legend. */

import type uPlot from "uplot";
import type { ChartSeries } from "./chart-options.js";
import type { Ink } from "./palette.js";

export function chartPicture(
  chart: uPlot | undefined,
  title: string,
  series: readonly ChartSeries[],
  ink: Pick<Ink, "ground" | "text">,
): Promise<Blob | undefined> {
  if (!chart) return Promise.resolve(undefined);
  const drawn = chart.ctx.canvas;
  const scale = devicePixelRatio;
  const canvas = document.createElement("canvas");
  const head = Math.round(56 * scale);
  canvas.width = drawn.width;
  canvas.height = drawn.height + head;
  const pen = canvas.getContext("2d");
  if (!pen) return Promise.resolve(undefined);
  pen.fillStyle = ink.ground;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(drawn, 0, head);
  pen.textBaseline = "middle";
  pen.fillStyle = ink.text;
  pen.font = `600 ${14 * scale}px system-ui, sans-serif`;
  pen.fillText(title, 12 * scale, 18 * scale);
  pen.font = `${12 * scale}px system-ui, sans-serif`;
  let left = 12 * scale;
  for (const { label, colour, isFaint } of series) {
    if (isFaint) continue;
    pen.fillStyle = colour;
    pen.fillRect(left, 37 * scale, 16 * scale, 3 * scale);
    pen.fillStyle = ink.text;
    pen.fillText(label, left + 22 * scale, 39 * scale);
    left += 22 * scale + pen.measureText(label).width + 18 * scale;
  }
  return new Promise((resolve) => canvas.toBlob((blob) => resolve(blob ?? undefined)));
}
