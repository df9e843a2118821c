/**
 * The picture of step memory without its pixels: each tensor a rectangle, bytes up and calls along; which of them lies under a
 * point, which are alive at the peak, which match a search.
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
  /** Where most is alive; undefined without step memory. */
  readonly peakPlace: number | undefined;
}

/** The rectangles of a plan's tensors, in their order. Halves between calls occur on side streams; then a place is half a call wide. */
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
  const lastCall = boxes.reduce((most, { right }) => Math.max(most, right), Math.max(1, calls.length));
  const lastByte = boxes.reduce((most, { top }) => Math.max(most, top), Math.max(1, memory.peak));
  const place = peakPlaceOf(memory);
  return {
    boxes,
    calls: { min: 0, max: lastCall },
    bytes: { min: 0, max: lastByte },
    peakPlace: place === undefined ? undefined : place + width / 2,
  };
}

/** The record has the call of the peak; on side streams the peak itself may be the place just before it. */
function peakPlaceOf({ peakAt, tensors }: PlanMemory): number | undefined {
  if (peakAt < 0) return undefined;
  const places = [peakAt, peakAt - 0.5];
  const [here = 0, before = 0] = places.map((place) => sumBytes(aliveAt(tensors, place)));
  return before > here ? peakAt - 0.5 : peakAt;
}

function aliveAt(tensors: readonly PlannedTensor[], place: number): PlannedTensor[] {
  return tensors.filter(({ birth, death }) => birth <= place && place <= death);
}

export function sumBytes(tensors: readonly { readonly bytes: number }[]): number {
  return tensors.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Who is alive at the peak, the largest first: they add up to the least that any plan needs. */
export function aliveAtPeak(memory: PlanMemory): PlannedTensor[] {
  const place = peakPlaceOf(memory);
  if (place === undefined) return [];
  return aliveAt(memory.tensors, place).sort((a, b) => b.bytes - a.bytes || a.offset - b.offset);
}

/** The phase of the step whose call makes a tensor; scratch memory has no type, and belongs to none. */
export function phaseOf({ type, birth }: PlannedTensor, calls: PlanRecord["calls"]): StepPhase | "scratch" {
  if (type === undefined) return "scratch";
  return calls[Math.min(calls.length - 1, Math.ceil(birth))]?.phase ?? "forward";
}

/** Which tensors' names or types hold the text; undefined where there is nothing to look for. */
export function matching(tensors: readonly PlannedTensor[], text: string): ReadonlySet<number> | undefined {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return undefined;
  const found = new Set<number>();
  for (const [index, { label, type, isSaved }] of tensors.entries()) {
    const told = `${label} ${type ?? "scratch"} ${isSaved ? "saved" : ""}`.toLowerCase();
    if (told.includes(wanted)) found.add(index);
  }
  return found;
}

const cellsAcross = 64;

/**
 * Finds the box under a point at once: a grid of cells over the picture, each with the boxes that touch it. Boxes of a plan don't
 * overlap, so there are few in a cell.
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

  /** The index of the box at a call and a byte; -1 where there is none. */
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

/** The nearest box in a direction, for moving by keys; the same one where there is none further. */
export function neighbour(boxes: readonly Box[], from: number, direction: Direction): number {
  const start = boxes[from];
  if (start === undefined) return boxes.length > 0 ? 0 : -1;
  const isKMajor = direction === "left" || direction === "right";
  const sign = direction === "right" || direction === "up" ? 1 : -1;
  const [byteSpan, callSpan] = [
    boxes.reduce((most, { top }) => Math.max(most, top), 1),
    boxes.reduce((most, { right }) => Math.max(most, right), 1),
  ];
  let [best, least] = [from, Infinity];
  for (const [index, box] of boxes.entries()) {
    const ahead = isKMajor ? (box.left - start.left) / callSpan : (box.bottom - start.bottom) / byteSpan;
    if (index === from || ahead * sign <= 0) continue;
    const aside = isKMajor ? (box.bottom - start.bottom) / byteSpan : (box.left - start.left) / callSpan;
    const distance = ahead * sign + 3 * Math.abs(aside);
    if (distance < least) [best, least] = [index, distance];
  }
  return best;
}
