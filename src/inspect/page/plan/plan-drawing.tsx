/** Draws the step memory picture: axes, rectangles, the line of the peak, and the selection. */

import { type Ink, phaseColours } from "../charts/palette.js";
import { byteTicks, type Range, roundTicks } from "../charts/scales.js";
import { formatBytes, formatCount } from "../tables/format.js";
import type { PlanPicture } from "./plan-picture.js";

/** The visible range. */
export interface View {
  readonly calls: Range;
  readonly bytes: Range;
}

/** The area of the picture on its canvas, in CSS pixels. */
export interface PlotArea {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

export function plotArea(width: number, height: number): PlotArea {
  const [left, top, right, bottom] = [72, 10, 12, 40];
  return { left, top, width: Math.max(1, width - left - right), height: height - top - bottom };
}

export interface BoxLook {
  readonly phase: keyof typeof phaseColours;
  readonly isSaved: boolean;
}

export interface BoxDrawing {
  readonly picture: PlanPicture;
  readonly looks: readonly BoxLook[];
  /** The search results; the other tensors are dimmed. */
  readonly matches: ReadonlySet<number> | undefined;
  readonly view: View;
  readonly area: PlotArea;
  readonly ink: Ink;
}

type Pen = CanvasRenderingContext2D;

/** Draws all rectangles, grouped by colour to avoid state changes. */
export function drawBoxes(pen: Pen, drawing: BoxDrawing): void {
  const { picture, looks, matches, view, area, ink } = drawing;
  drawAxes(pen, view, area, ink);
  const toPixels = pixelMapper(view, area);
  pen.save();
  clipTo(pen, area);
  const strips = stripsOf(pen, ink);
  for (const phase of Object.keys(phaseColours) as (keyof typeof phaseColours)[]) {
    for (const isDimmed of [true, false]) {
      pen.globalAlpha = isDimmed ? 0.12 : 0.85;
      for (const [index, box] of picture.boxes.entries()) {
        const look = looks[index];
        if (look?.phase !== phase || isDimmed !== (matches !== undefined && !matches.has(index))) continue;
        const { left, top, width, height } = toPixels(box);
        if (left > area.left + area.width || left + width < area.left) continue;
        if (top > area.top + area.height || top + height < area.top) continue;
        pen.fillStyle = phaseColours[phase];
        pen.fillRect(left, top, width, height);
        if (look.isSaved && strips) {
          pen.fillStyle = strips;
          pen.fillRect(left, top, width, height);
        }
        if (width > 3 && height > 3) {
          pen.strokeStyle = ink.ground;
          pen.lineWidth = 1;
          pen.strokeRect(left + 0.5, top + 0.5, width - 1, height - 1);
        }
      }
    }
  }
  pen.restore();
  drawPeak(pen, picture, view, area, ink);
}

export interface OverlayDrawing {
  readonly picture: PlanPicture;
  readonly view: View;
  readonly area: PlotArea;
  readonly ink: Ink;
  /** The selected and the hovered tensor. */
  readonly boxes: readonly number[];
}

export function drawOverlay(pen: Pen, { picture, view, area, ink, boxes }: OverlayDrawing): void {
  const toPixels = pixelMapper(view, area);
  pen.save();
  clipTo(pen, area);
  for (const index of boxes) {
    const box = picture.boxes[index];
    if (!box) continue;
    const { left, top, width, height } = toPixels(box);
    pen.strokeStyle = ink.ground;
    pen.lineWidth = 4;
    pen.strokeRect(left, top, width, height);
    pen.strokeStyle = ink.text;
    pen.lineWidth = 2;
    pen.strokeRect(left, top, width, height);
  }
  pen.restore();
}

/** Maps calls and bytes to pixels, with a min. visible size. */
function pixelMapper({ calls, bytes }: View, area: PlotArea) {
  const across = area.width / (calls.max - calls.min);
  const up = area.height / (bytes.max - bytes.min);
  return ({ left, right, bottom, top }: PlanPicture["boxes"][number]) => ({
    left: area.left + (left - calls.min) * across,
    top: area.top + area.height - (top - bytes.min) * up,
    width: Math.max(0.75, (right - left) * across),
    height: Math.max(0.75, (top - bottom) * up),
  });
}

function clipTo(pen: Pen, { left, top, width, height }: PlotArea): void {
  pen.beginPath();
  pen.rect(left, top, width, height);
  pen.clip();
}

function drawAxes(pen: Pen, { calls, bytes }: View, area: PlotArea, ink: Ink): void {
  pen.font = "12px system-ui, sans-serif";
  pen.strokeStyle = ink.line;
  pen.fillStyle = ink.muted;
  pen.lineWidth = 1;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const tick of byteTicks(bytes, 6)) {
    const y =
      Math.round(area.top + area.height - ((tick - bytes.min) / (bytes.max - bytes.min)) * area.height) + 0.5;
    line(pen, area.left, y, area.left + area.width, y);
    pen.fillText(formatBytes(tick), area.left - 8, y);
  }
  pen.textAlign = "center";
  pen.textBaseline = "top";
  for (const tick of roundTicks(calls, Math.max(4, area.width / 110))) {
    if (!Number.isInteger(tick)) continue;
    const x = Math.round(area.left + ((tick - calls.min) / (calls.max - calls.min)) * area.width) + 0.5;
    line(pen, x, area.top, x, area.top + area.height);
    pen.fillText(formatCount(tick), x, area.top + area.height + 6);
  }
  pen.textAlign = "right";
  pen.fillText("call →", area.left + area.width, area.top + area.height + 23);
  pen.textAlign = "left";
  pen.fillText("↑ address in the step's block", area.left, area.top + area.height + 23);
}

function drawPeak(pen: Pen, { peakColumn }: PlanPicture, { calls }: View, area: PlotArea, ink: Ink): void {
  if (peakColumn === undefined || peakColumn < calls.min || peakColumn > calls.max) return;
  const x = area.left + ((peakColumn - calls.min) / (calls.max - calls.min)) * area.width;
  pen.strokeStyle = ink.alert;
  pen.lineWidth = 1.5;
  pen.setLineDash([5, 3]);
  line(pen, x, area.top, x, area.top + area.height);
  pen.setLineDash([]);
  const isLeft = x > area.left + area.width - 60;
  pen.font = "600 12px system-ui, sans-serif";
  pen.textBaseline = "top";
  const width = pen.measureText("peak").width;
  const start = isLeft ? x - 6 - width : x + 6;
  pen.fillStyle = ink.ground;
  pen.fillRect(start - 3, area.top + 2, width + 6, 17);
  pen.fillStyle = ink.alert;
  pen.textAlign = "left";
  pen.fillText("peak", start, area.top + 4);
}

function line(pen: Pen, fromX: number, fromY: number, toX: number, toY: number): void {
  pen.beginPath();
  pen.moveTo(fromX, fromY);
  pen.lineTo(toX, toY);
  pen.stroke();
}

/** Tensors saved for backward are striped, so that they do not depend on colour. */
function stripsOf(pen: Pen, ink: Ink): CanvasPattern | undefined {
  const tile = document.createElement("canvas");
  tile.width = 8;
  tile.height = 8;
  const inner = tile.getContext("2d");
  if (!inner) return undefined;
  inner.strokeStyle = ink.ground;
  inner.globalAlpha = 0.55;
  inner.lineWidth = 2;
  for (const shift of [-8, 0, 8]) line(inner, shift - 1, 9, shift + 9, -1);
  return pen.createPattern(tile, "repeat") ?? undefined;
}
