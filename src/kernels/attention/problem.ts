/** The description of an attention problem, and its validation: sizes and strides are consistent, and the storages are large enough. */

import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes } from "../../ir/index.js";
import type { Storage } from "../../runtime/index.js";
import type { GemmDtype } from "../gemm/cpu/element.js";
import { keepAll, thresholdOf } from "../random/distributions.js";
import { stateBytes } from "../random/random-state.js";
import { keptBitsShape } from "./kept-bits.js";

/** A [batch, heads, rows, width] operand with a contiguous last dimension. Strides count elements. */
export interface AttentionOperand {
  /** Begins at the operand's first element: a view if the operand is part of a larger storage. */
  readonly storage: Storage;
  readonly batchStride: number;
  readonly headStride: number;
  readonly rowStride: number;
}

/** An operand that is only read. */
export interface AttentionInput extends AttentionOperand {
  /**
   * The dtype in memory; default: the shape's. 16-bit inputs (CUDA only) are widened on load; those of one call have the same dtype.
   */
  readonly dtype?: Dtype;
}

/** Added to the scores, [batch, heads, rows, columns]; a stride of 0 broadcasts it along that dimension. */
export interface AttentionMask extends AttentionOperand {
  readonly columnStride: number;
}

export interface AttentionShape {
  readonly dtype: GemmDtype;
  readonly batch: number;
  readonly heads: number;
  /**
   * The heads of keys and values, each for heads / keyHeads neighbouring heads of queries; default: `heads`. Fewer need `statistics`
   * instead of `probabilities`.
   */
  readonly keyHeads?: number;
  /** The number of queries, and of keys and values. */
  readonly rows: number;
  readonly columns: number;
  /** The length of a query and a key, and of a value. */
  readonly width: number;
  readonly valueWidth: number;
  /**
   * The dtype of `out` in the forward pass, and of the gradients of query, key and value in the backward pass; default: `dtype`. 16-bit
   * results (CUDA only) are rounded once, as by a separate conversion.
   */
  readonly resultDtype?: Dtype;
}

/** The shape of keys and values, with their heads. */
export function keyShapeOf<Shape extends AttentionShape>(shape: Shape): Shape {
  return { ...shape, heads: shape.keyHeads ?? shape.heads };
}

/** The dtype of a call's results in memory. */
export function resultDtypeOf({ dtype, resultDtype = dtype }: AttentionShape): Dtype {
  return resultDtype;
}

interface Inputs extends AttentionShape {
  /** A stride of 0 broadcasts an input along that dimension. */
  readonly query: AttentionInput;
  readonly key: AttentionInput;
  readonly value: AttentionInput;
  /** The factor of a score, usually 1 / √width. */
  readonly scale: number;
  /** Row i attends to columns 0 to i, from the top left corner; default: false. */
  readonly isCausal?: boolean;
}

/** `out = probabilities · value`, `probabilities = softmax(scale · query · keyᵀ + mask)`. Outputs share no element. */
interface Forward extends Inputs {
  readonly mask?: AttentionMask;
  /** [batch, heads, rows, valueWidth] */
  readonly out: AttentionOperand;
}

/** Outputs share no element, and none with an input. */
interface Backward extends Inputs {
  /** The gradient of `out`, [batch, heads, rows, valueWidth]. */
  readonly outGradient: AttentionInput;
  readonly queryGradient: AttentionOperand;
  readonly keyGradient: AttentionOperand;
  readonly valueGradient: AttentionOperand;
}

/** Keeps the probabilities for the backward pass. */
export interface AttentionProblem extends Forward {
  /** [batch, heads, rows, columns], contiguous: the scores are computed there, and the backward pass reads the probabilities. */
  readonly probabilities: Storage;
}

export interface AttentionBackwardProblem extends Backward {
  /** As the forward pass stored them. */
  readonly probabilities: Storage;
  /**
   * The gradient of the scores after scale and mask, [batch, heads, rows, columns], contiguous: the gradient of the mask, or scratch memory
   * if that is not needed.
   */
  readonly scoreGradient: Storage;
}

/** Dropout of probabilities; default: none. Each row of [batch, heads, rows, columns] begins with a new Philox call of the draw. */
export interface AttentionDropout {
  /** The probability that a probability is dropped, more than 0; the others are scaled by 1 / (1 − p). */
  readonly dropoutP?: number;
  /** The draw, as `reserveDraw` copies it. The backward pass takes the same one, or `keptBits`. */
  readonly randomState?: Storage;
  /** Of `keptBitsShape`. The forward pass stores it, if it is given; the backward pass then reads it. */
  readonly keptBits?: Storage;
}

/** Keeps one number per row for the backward pass, which computes the probabilities again: scores are never in memory. */
export interface FlashProblem extends Forward, AttentionDropout {
  /** [batch, heads, rows], of the shape's dtype, contiguous: in the unit that the kernels of the device use. */
  readonly statistics: Storage;
}

export interface FlashBackwardProblem extends Backward, AttentionDropout {
  readonly mask?: AttentionMask;
  /** The result of the forward pass, and its statistics. */
  readonly out: AttentionInput;
  readonly statistics: Storage;
  /** Scratch memory of the size of `statistics`. */
  readonly deltas: Storage;
  /** The gradient of the mask, if it is needed: [batch, heads, rows, columns], contiguous. */
  readonly scoreGradient?: Storage;
}

export type ForwardProblem = AttentionProblem | FlashProblem;
export type BackwardProblem = AttentionBackwardProblem | FlashBackwardProblem;

/** The 16-bit inputs and their dtype. */
export interface HalfInputs {
  readonly dtype?: "f16" | "bf16";
  readonly names: readonly string[];
}

export function halfInputsOf(problem: ForwardProblem | BackwardProblem): HalfInputs {
  const { query, key, value } = problem;
  const isFlashBackward = "outGradient" in problem && "statistics" in problem;
  const inputs = {
    ...{ query, key, value },
    ...("outGradient" in problem && { outGradient: problem.outGradient }),
    ...(isFlashBackward && { out: problem.out }),
  };
  const halves = Object.entries<AttentionInput>(inputs).flatMap(([name, { dtype }]) =>
    dtype === "f16" || dtype === "bf16" ? [{ name, dtype }] : [],
  );
  const [first] = halves;
  return { names: halves.map(({ name }) => name), ...(first && { dtype: first.dtype }) };
}

/** Rejects fewer heads of keys than of queries, unless the kernels keep statistics. */
export function rejectGroupedHeads(name: string, { heads, keyHeads = heads }: AttentionShape): void {
  if (keyHeads === heads) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${name}: ${heads} heads of queries and ${keyHeads} of keys need statistics of rows, not probabilities. Repeat the heads of keys and values.`,
  );
}

/** Rejects a problem without probabilities, which the CPU kernels need. */
export function requireProbabilities<Problem extends object>(
  problem: Problem | FlashProblem | FlashBackwardProblem,
): Exclude<Problem, FlashProblem | FlashBackwardProblem> {
  if (!("statistics" in problem)) return problem as Exclude<Problem, FlashProblem | FlashBackwardProblem>;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    "attend: the CPU kernels keep probabilities, not statistics of rows. Pass memory for the probabilities.",
  );
}

/** Rejects 16-bit inputs and results, which the CPU kernels do not support. */
export function rejectRounding(name: string, shape: ForwardProblem | BackwardProblem): void {
  const { dtype: inputDtype, names } = halfInputsOf(shape);
  if (inputDtype) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${name}: the CPU kernels read ${shape.dtype}, and ${names.join(", ")} has ${inputDtype}. Convert it first.`,
    );
  }
  const resultDtype = resultDtypeOf(shape);
  if (resultDtype === shape.dtype) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${name}: the CPU kernels store ${shape.dtype}, not ${resultDtype}. Convert the results afterwards.`,
  );
}

/** The validation of one call; `name` starts every error message. */
export class ProblemCheck {
  readonly #name: string;
  readonly #shape: AttentionShape;
  /** The dtype of the first 16-bit input. */
  #halves: Dtype | undefined;

  constructor(name: string, shape: AttentionShape) {
    this.#name = name;
    this.#shape = shape;
    const { dtype, batch, heads, rows, columns, width, valueWidth } = shape;
    const stored = resultDtypeOf(shape);
    if (stored !== dtype && (dtype !== "f32" || (stored !== "f16" && stored !== "bf16"))) {
      throw this.#rejected(
        `results of ${dtype} can't be stored as ${stored}: those of f32 can, as f16 or bf16.`,
      );
    }
    const { keyHeads = heads } = shape;
    for (const [size, value] of Object.entries({ batch, heads, keyHeads }))
      this.#requireCount(size, value, 0);
    if (keyHeads !== heads && (keyHeads === 0 || heads % keyHeads !== 0)) {
      throw this.#rejected(
        `${heads} heads of queries are no multiple of ${keyHeads} heads of keys and values.`,
      );
    }
    for (const [size, value] of Object.entries({ rows, columns, width, valueWidth })) {
      this.#requireCount(size, value, 1);
    }
  }

  requireInput(name: string, operand: AttentionInput, rows: number, width: number): void {
    const { dtype } = this.#shape;
    const { dtype: read = dtype } = operand;
    if (read !== dtype) this.#requireHalves(name, read);
    this.#requireOperand(name, operand, rows, { size: width, stride: 1 }, read);
  }

  requireMask(mask: AttentionMask): void {
    const { rows, columns } = this.#shape;
    this.#requireCount("mask's column stride", mask.columnStride, 0);
    const last = { size: columns, stride: mask.columnStride };
    this.#requireOperand("mask", mask, rows, last, this.#shape.dtype);
  }

  /** Rejects overlapping elements: each stride must span the extent of the dimensions with smaller strides. */
  requireOutput(name: string, operand: AttentionOperand, rows: number, width: number): void {
    this.#requireOperand(name, operand, rows, { size: width, stride: 1 }, resultDtypeOf(this.#shape));
    const dimensions = this.#dimensionsOf(name, operand, rows).filter(({ size }) => size > 1);
    let extent = width;
    for (const { size, stride, what } of dimensions.toSorted((a, b) => a.stride - b.stride)) {
      if (stride < extent) {
        throw this.#rejected(
          `${name}'s ${what} stride of ${stride} makes its elements overlap; it must be at least ${extent}.`,
        );
      }
      extent += (size - 1) * stride;
    }
  }

  /** A number per row. */
  requireRows(name: string, storage: Storage): void {
    const { dtype, batch, heads, rows } = this.#shape;
    this.#requireAvailable(name, `${batch}×${heads}×${rows}`, batch * heads * rows, storage, dtype);
  }

  /** `canLoad`: the backward pass needs no draw if it has the bits. */
  requireDropout({ dropoutP, randomState, keptBits }: AttentionDropout, canLoad: boolean): void {
    if (dropoutP === undefined && !randomState && !keptBits) return;
    if (dropoutP === undefined || thresholdOf(1 - dropoutP) === keepAll)
      throw this.#rejected(`dropout with a probability of ${dropoutP} drops nothing. Leave it out.`);
    if (keptBits) {
      const words = keptBitsShape(this.#shape);
      const needed = words.reduce((product, size) => product * size, 1);
      this.#requireAvailable("keptBits", words.join("×"), needed, keptBits, "i32");
    }
    if (!(keptBits && canLoad) && randomState?.span.size !== stateBytes)
      throw this.#rejected(`dropout needs a random state of ${stateBytes} bytes.`);
  }

  requireScores(name: string, storage: Storage): void {
    const { dtype, batch, heads, rows, columns } = this.#shape;
    const elements = batch * heads * rows * columns;
    this.#requireAvailable(name, `${batch}×${heads}×${rows}×${columns}`, elements, storage, dtype);
  }

  #requireHalves(name: string, read: Dtype): void {
    const { dtype } = this.#shape;
    if (dtype !== "f32" || (read !== "f16" && read !== "bf16")) {
      throw this.#rejected(`${name} can't be read as ${read} for ${dtype}: for f32 it can, as f16 or bf16.`);
    }
    this.#halves ??= read;
    if (this.#halves !== read) throw this.#rejected(`${name} has ${read} and another input ${this.#halves}.`);
  }

  #requireOperand(
    name: string,
    operand: AttentionOperand,
    rows: number,
    last: { readonly size: number; readonly stride: number },
    dtype: Dtype,
  ): void {
    const dimensions = this.#dimensionsOf(name, operand, rows);
    for (const { what, stride } of dimensions) this.#requireCount(`${name}'s ${what} stride`, stride, 0);
    const all = [...dimensions, last];
    const extent = all.reduce((sum, { size, stride }) => sum + (size - 1) * stride, 1);
    this.#requireAvailable(name, all.map(({ size }) => size).join("×"), extent, operand.storage, dtype);
  }

  #dimensionsOf(name: string, { batchStride, headStride, rowStride }: AttentionOperand, rows: number) {
    const { batch, heads } = isOfKeys(name) ? keyShapeOf(this.#shape) : this.#shape;
    return [
      { what: "batch", size: batch, stride: batchStride },
      { what: "head", size: heads, stride: headStride },
      { what: "row", size: rows, stride: rowStride },
    ] as const;
  }

  #requireAvailable(name: string, shape: string, elements: number, storage: Storage, dtype: Dtype): void {
    const { batch, heads } = this.#shape;
    const neededBytes = elements * dtypes[dtype].bytes;
    if (batch * heads > 0 && neededBytes > storage.span.size) {
      throw this.#rejected(
        `${name} takes ${neededBytes} bytes (${shape} of ${dtype}), and "${storage.label}" has ${storage.span.size}. Pass a larger storage, or smaller strides.`,
      );
    }
  }

  #requireCount(name: string, value: number, min: number): void {
    if (!Number.isSafeInteger(value) || value < min || value >= 2 ** 31) {
      throw this.#rejected(`${name} is ${value}; pass a whole number from ${min} to 2³¹ − 1.`);
    }
  }

  #rejected(message: string): HoldfastError {
    return new HoldfastError("BAD_ARGUMENT", `${this.#name}: ${message}`);
  }
}

/** Operands with the heads of keys and values. */
export function isOfKeys(name: string): boolean {
  return name.startsWith("key") || name.startsWith("value");
}

export type Access = "out" | "partial-out";

/** "out" if the launch writes every byte of its outputs' storages, so that none of their old contents remains. */
export function accessTo(problem: ForwardProblem): Access {
  const { dtype, rows, columns, valueWidth, out } = problem;
  return accessToAll(problem, [
    [out.storage, rows * valueWidth, resultDtypeOf(problem)],
    "statistics" in problem
      ? [problem.statistics, rows, dtype]
      : [problem.probabilities, rows * columns, dtype],
  ]);
}

export function backwardAccessTo(problem: BackwardProblem): Access {
  const { dtype, rows, columns, width, valueWidth, scoreGradient } = problem;
  const { queryGradient, keyGradient, valueGradient } = problem;
  const stored = resultDtypeOf(problem);
  const scores = scoreGradient ? ([[scoreGradient, rows * columns, dtype]] as const) : [];
  const { heads, keyHeads = heads } = problem;
  // Elements of one head of queries.
  const keyRows = (columns * keyHeads) / heads;
  return accessToAll(problem, [
    [queryGradient.storage, rows * width, stored],
    [keyGradient.storage, keyRows * width, stored],
    [valueGradient.storage, keyRows * valueWidth, stored],
    ...scores,
  ]);
}

function accessToAll(
  { batch, heads }: AttentionShape,
  outputs: readonly (readonly [storage: Storage, elementsOfPair: number, dtype: Dtype])[],
): Access {
  const isAllWritten = outputs.every(
    ([{ span }, elements, dtype]) => span.size === batch * heads * elements * dtypes[dtype].bytes,
  );
  return isAllWritten ? "out" : "partial-out";
}
