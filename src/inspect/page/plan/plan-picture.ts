/**
 * The geometry of the step memory picture: each tensor is a rectangle over calls (x) and bytes (y). Finds the tensor at a point,
 * those live at the peak, and those that match a search.
 */

import type { Range } from "../charts/scales.js";
import type { PlanMemory, PlannedTensor, PlanRecord, StepPhase } from "../wire.js";

export interface Box {
  readonly left: number;
  readonly right: number;
  readonly bottom: number;
  readonly top: number;
}

export interface PlanPicture {
  readonly boxes: readonly Box[];
  readonly calls: Range;
  readonly bytes: Range;
  /** The position of the peak; undefined without step memory. */
  readonly peakColumn: number | undefined;
}

/** The rectangles of a plan's tensors, in order. With side streams, lifetimes may start or end at half calls; then a column is half a call wide. */
export function pictureOf({ memory, calls }: Pick<PlanRecord, "memory" | "calls">): PlanPicture {
  const { tensors } = memory;
  const hasHalves = tensors.some(({ birth, death }) => !Number.isInteger(birth) || !Number.isInteger(death));
  const width = hasHalves ? 0.5 : 1;
  const boxes = tensors.map(({ birth, death, offset, bytes }) => ({
    left: birth,
    right: death + width,
    bottom: offset,
    top: offset + bytes,
  }));
  const lastCall = boxes.reduce((max, { right }) => Math.max(max, right), Math.max(1, calls.length));
  const lastByte = boxes.reduce((max, { top }) => Math.max(max, top), Math.max(1, memory.peak));
  const column = peakColumnOf(memory);
  return {
    boxes,
    calls: { min: 0, max: lastCall },
    bytes: { min: 0, max: lastByte },
    peakColumn: column === undefined ? undefined : column + width / 2,
  };
}

/** The record has the call of the peak; with side streams, the peak may be just before it. */
function peakColumnOf({ peakAt, tensors }: PlanMemory): number | undefined {
  if (peakAt < 0) return undefined;
  const columns = [peakAt, peakAt - 0.5];
  const [here = 0, before = 0] = columns.map((column) => sumBytes(liveAt(tensors, column)));
  return before > here ? peakAt - 0.5 : peakAt;
}

function liveAt(tensors: readonly PlannedTensor[], column: number): PlannedTensor[] {
  return tensors.filter(({ birth, death }) => birth <= column && column <= death);
}

export function sumBytes(tensors: readonly { readonly bytes: number }[]): number {
  return tensors.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** The tensors live at the peak, the largest first. Their sum is the lower bound of any plan. */
export function liveAtPeak(memory: PlanMemory): PlannedTensor[] {
  const column = peakColumnOf(memory);
  if (column === undefined) return [];
  return liveAt(memory.tensors, column).sort((a, b) => b.bytes - a.bytes || a.offset - b.offset);
}

/** The phase of the call that makes a tensor; scratch memory has no type and no phase. */
export function phaseOf({ type, birth }: PlannedTensor, calls: PlanRecord["calls"]): StepPhase | "scratch" {
  if (type === undefined) return "scratch";
  return calls[Math.min(calls.length - 1, Math.ceil(birth))]?.phase ?? "forward";
}

/** The tensors whose name or type contains the text; undefined for an empty search. */
export function matchingTensors(
  tensors: readonly PlannedTensor[],
  text: string,
): ReadonlySet<number> | undefined {
  const query = text.trim().toLowerCase();
  if (query === "") return undefined;
  const matches = new Set<number>();
  for (const [index, { label, type, isSaved }] of tensors.entries()) {
    const text = `${label} ${type ?? "scratch"} ${isSaved ? "saved" : ""}`.toLowerCase();
    if (text.includes(query)) matches.add(index);
  }
  return matches;
}

const cellsAcross = 64;

/**
 * Finds the box at a point quickly, with a grid of cells that list the boxes they touch. Boxes of a plan do not overlap, so a cell has
 * few.
 */
export class BoxIndex {
  readonly #picture: PlanPicture;
  readonly #cells: readonly number[][];

  constructor(picture: PlanPicture) {
    this.#picture = picture;
    const cells = Array.from({ length: cellsAcross * cellsAcross }, (): number[] => []);
    for (const [index, box] of picture.boxes.entries()) {
      const [left, right] = [this.#column(box.left), this.#column(box.right)];
      const [bottom, top] = [this.#row(box.bottom), this.#row(box.top)];
      for (let row = bottom; row <= top; row++)
        for (let column = left; column <= right; column++) cells[row * cellsAcross + column]?.push(index);
    }
    this.#cells = cells;
  }

  /** The index of the box at a call and a byte, or -1. */
  at(call: number, byte: number): number {
    const cell = this.#cells[this.#row(byte) * cellsAcross + this.#column(call)] ?? [];
    return (
      cell.find((index) => {
        const box = this.#picture.boxes[index];
        return box && box.left <= call && call < box.right && box.bottom <= byte && byte < box.top;
      }) ?? -1
    );
  }

  #column(call: number): number {
    return cellOf(call, this.#picture.calls);
  }

  #row(byte: number): number {
    return cellOf(byte, this.#picture.bytes);
  }
}

function cellOf(value: number, { min, max }: Range): number {
  const share = (value - min) / (max - min);
  return Math.max(0, Math.min(cellsAcross - 1, Math.floor(share * cellsAcross)));
}

export type Direction = "left" | "right" | "up" | "down";

/** The nearest box in a direction, for arrow keys; the same box if there is none. */
export function neighbour(boxes: readonly Box[], from: number, direction: Direction): number {
  const start = boxes[from];
  if (start === undefined) return boxes.length > 0 ? 0 : -1;
  const isHorizontal = direction === "left" || direction === "right";
  const sign = direction === "right" || direction === "up" ? 1 : -1;
  const [byteSpan, callSpan] = [
    boxes.reduce((max, { top }) => Math.max(max, top), 1),
    boxes.reduce((max, { right }) => Math.max(max, right), 1),
  ];
  let [best, nearest] = [from, Infinity];
  for (const [index, box] of boxes.entries()) {
    const ahead = isHorizontal ? (box.left - start.left) / callSpan : (box.bottom - start.bottom) / byteSpan;
    if (index === from || ahead * sign <= 0) continue;
    const sideways = isHorizontal
      ? (box.bottom - start.bottom) / byteSpan
      : (box.left - start.left) / callSpan;
    const distance = ahead * sign + 3 * Math.abs(sideways);
    if (distance < nearest) [best, nearest] = [index, distance];
  }
  return best;
}
