/** The strokes of the picture of step memory: axes, rectangles, the peak's line, and what is held. */

import { type Ink, phaseColours } from "../charts/palette.js";
import { byteTicks, type Range, roundTicks } from "../charts/scales.js";
import { formatBytes, formatCount } from "../tables/format.js";
import type { PlanPicture } from "./plan-picture.js";

/** What of the picture is seen. */
export interface View {
  readonly calls: Range;
  readonly bytes: Range;
}

/** Where the picture lies on its canvas, in pixels of the page. */
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
  /** Those that a search has found; the others are dimmed. */
  readonly found: ReadonlySet<number> | undefined;
  readonly view: View;
  readonly area: PlotArea;
  readonly ink: Ink;
}

type Pen = CanvasRenderingContext2D;

/** Every rectangle, one colour after the other: so that the pen changes seldom. */
export function drawBoxes(pen: Pen, drawing: BoxDrawing): void {
  const { picture, looks, found, view, area, ink } = drawing;
  drawAxes(pen, view, area, ink);
  const place = placer(view, area);
  pen.save();
  clipTo(pen, area);
  const strips = stripsOf(pen, ink);
  for (const phase of Object.keys(phaseColours) as (keyof typeof phaseColours)[]) {
    for (const isDimmed of [true, false]) {
      pen.globalAlpha = isDimmed ? 0.12 : 0.85;
      for (const [index, box] of picture.boxes.entries()) {
        const look = looks[index];
        if (look?.phase !== phase || isDimmed !== (found !== undefined && !found.has(index))) continue;
        const { left, top, width, height } = place(box);
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
  /** The held one and the hovered one. */
  readonly boxes: readonly number[];
}

export function drawOverlay(pen: Pen, { picture, view, area, ink, boxes }: OverlayDrawing): void {
  const place = placer(view, area);
  pen.save();
  clipTo(pen, area);
  for (const index of boxes) {
    const box = picture.boxes[index];
    if (!box) continue;
    const { left, top, width, height } = place(box);
    pen.strokeStyle = ink.ground;
    pen.lineWidth = 4;
    pen.strokeRect(left, top, width, height);
    pen.strokeStyle = ink.text;
    pen.lineWidth = 2;
    pen.strokeRect(left, top, width, height);
  }
  pen.restore();
}

/** From calls and bytes to pixels; nothing gets thinner than can be seen. */
function placer({ calls, bytes }: View, area: PlotArea) {
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

function drawPeak(pen: Pen, { peakPlace }: PlanPicture, { calls }: View, area: PlotArea, ink: Ink): void {
  if (peakPlace === undefined || peakPlace < calls.min || peakPlace > calls.max) return;
  const x = area.left + ((peakPlace - calls.min) / (calls.max - calls.min)) * area.width;
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

/** What is saved for backward is striped: seen without telling colours apart. */
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
