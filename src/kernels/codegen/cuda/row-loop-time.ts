/**
 * How many registers a thread of a loop over rows needs, and how long the loop takes by its latencies and instructions. Its memory traffic
 * takes longer if enough loads are in flight (Little's law): the rows of all teams are.
 */

import {
  type Axis,
  countUses,
  factsOf,
  type Iteration,
  innerStrideOf,
  loadsOf,
  type RowKernel,
} from "../../../ir/index.js";
import {
  issueCyclesPerWarp,
  memoryLatencyUs,
  registerBytes,
  schedulersPerSm,
  smCyclesPerUs,
  warpSize,
} from "../../cost-model.js";
import { vectorWidth } from "./vector-alignment.js";
import { vectorsInFlight } from "./vector-batches.js";

/** What a loop over rows does for each element, and the number of its elements. */
export interface RowLoopWork {
  readonly rows: number;
  readonly columns: number;
  /** How many column sums there are. */
  readonly sums: number;
  /** Bytes of registers for the inputs that vary along a row, for each element. */
  readonly elementBytes: number;
  /** Those of them that are other elements of memory in each row. */
  readonly loadedBytes: number;
  /** Numbers that are drawn for each element. */
  readonly draws: number;
  /** Reductions of a row, each of which waits for all of its threads. */
  readonly reductions: number;
  readonly instructions: number;
}

/** A loop over rows: how the threads of a team share a row, and what a thread keeps in registers. */
export interface RowLoop {
  readonly lanes: number;
  /** Vectors of a row for each thread. */
  readonly vectors: number;
  readonly isCached: boolean;
  readonly isPrefetched?: boolean;
}

/** Two numbers of a draw share a register. */
export const drawnBytes = registerBytes / 2;
/** Instructions of a number that is drawn: a Philox call and its distribution have about 60 for a vector. */
const drawInstructions = 15;
/** Instructions of each warp for a row: addresses of operands, and copies of a prefetched row. */
const rowInstructions = 150;
/** Instructions of a load or store besides its operation: the address, and the conversion to or from a dtype of 16 bits. */
const accessInstructions = 1.5;

/**
 * True if an input seems to be an output that the kernel has stored, such as a gradient whose columns are summed: then it takes no registers.
 * Their memory is not known here: an input that is only summed, and has the layout of an output, is taken for that output.
 */
function isForwarded(
  { inputs, outputs, stages }: RowKernel,
  { row, outer }: Iteration,
  input: number,
): boolean {
  const isSame = ({ strides }: Axis, output: number): boolean =>
    strides[input] === strides[inputs.length + output];
  const hasOutput = outputs.some(
    ({ dtype, per }, output) =>
      per === "element" && dtype === inputs[input] && [row, ...outer].every((axis) => isSame(axis, output)),
  );
  const isOnlySummed = stages.every(
    (stage) =>
      !loadsOf(stage.value).some((load) => load.input === input) ||
      (stage.kind === "store" && outputs[stage.output]?.per === "column" && stage.value.kind === "load"),
  );
  return hasOutput && isOnlySummed;
}

export function rowLoopWorkOf(kernel: RowKernel, iteration: Iteration): RowLoopWork {
  const { row, rows, outer } = iteration;
  const { stages, outputs } = kernel;
  const facts = factsOf(kernel);
  let [elementBytes, loadedBytes, accesses, draws] = [0, 0, 0, 0];
  for (const [input, isRead] of facts.isReadDirectly.entries()) {
    if (!isRead || innerStrideOf(row, input) === "none" || isForwarded(kernel, iteration, input)) continue;
    const isDrawn = kernel.inputs[input] === "draw";
    const bytes = isDrawn ? drawnBytes : (facts.bytes[input] ?? 0);
    elementBytes += bytes;
    if (isDrawn) draws++;
    else {
      accesses++;
      if (outer.some(({ strides }) => strides[input] !== 0)) loadedBytes += bytes;
    }
  }
  accesses += outputs.filter(({ per }) => per === "element").length;
  const operations = [...countUses(...stages.map(({ value }) => value)).keys()].filter(
    ({ kind }) => kind !== "load" && kind !== "constant" && kind !== "scalar" && kind !== "reduced",
  );
  const reductions = stages.filter(({ kind }) => kind === "reduce").length;
  const sums = outputs.filter(({ per }) => per === "column").length;
  const instructions =
    operations.length + reductions + sums + accesses * accessInstructions + draws * drawInstructions;
  return {
    ...{ rows, columns: row.size, sums, elementBytes, loadedBytes },
    ...{ draws, reductions, instructions },
  };
}

/** Registers for addresses and counters. */
const addressRegisters = 32;
/**
 * Registers for the intermediate values of a vector, because nvcc interleaves the vectors of a thread: the more, the more of them are
 * independent. With these, nvcc 13 spills nothing in the gradients of norms and activations.
 */
const vectorRegisters = { elementwise: 2, reducing: 3, prefetching: 7, drawing: 7 } as const;

function vectorRegistersOf({ reductions, draws }: RowLoopWork, isPrefetched: boolean): number {
  if (reductions === 0) return vectorRegisters.elementwise;
  if (draws > 0) return vectorRegisters.drawing;
  return vectorRegisters[isPrefetched ? "prefetching" : "reducing"];
}

/** The vectors that a thread loads before it uses the first one, if its registers do not keep the row. */
function vectorsInBatch({ elementBytes }: RowLoopWork, { lanes, vectors }: RowLoop): number {
  return Math.min(vectors, vectorsInFlight(vectorWidth * elementBytes, lanes));
}

/** Bytes of registers that a thread of a loop needs. */
export function registerBytesOf(work: RowLoopWork, loop: RowLoop): number {
  const { vectors, isCached, isPrefetched = false } = loop;
  const vectorsAtOnce = isCached ? vectors : vectorsInBatch(work, loop);
  const cached = vectorsAtOnce * work.elementBytes;
  const prefetched = isPrefetched ? vectors * work.loadedBytes : 0;
  const sums = work.sums * vectors * registerBytes;
  const perVector = vectorRegistersOf(work, isPrefetched);
  const overhead = registerBytes * (addressRegisters + perVector * vectorsAtOnce);
  return vectorWidth * (sums + cached + prefetched) + overhead;
}

/** The butterfly of a warp, and that of several warps with its barrier. */
const warpReductionUs = 0.15;
const blockReductionUs = 0.3;

/** How rows are distributed over teams. */
export interface RowShares {
  /** Resident teams of an SM. */
  readonly teamsPerSm: number;
  /** Rows that a resident team processes, one after the other. */
  readonly rowsPerTeam: number;
}

/** The time of the loop, if memory has enough bandwidth. */
export function rowLoopUs(work: RowLoopWork, loop: RowLoop, { teamsPerSm, rowsPerTeam }: RowShares): number {
  const { vectors, lanes, isCached, isPrefetched = false } = loop;
  const warpsPerScheduler = (teamsPerSm * lanes) / warpSize / schedulersPerSm;
  const instructions = work.instructions * vectors * vectorWidth + rowInstructions;
  const computeUs = (instructions * Math.max(issueCyclesPerWarp, warpsPerScheduler)) / smCyclesPerUs;
  const reduceUs = work.reductions * (lanes > warpSize ? blockReductionUs : warpReductionUs);
  const batches = isCached ? 1 : (1 + work.reductions) * Math.ceil(vectors / vectorsInBatch(work, loop));
  const loadUs = batches * memoryLatencyUs;
  const rowUs = isPrefetched ? Math.max(loadUs, reduceUs + computeUs) : loadUs + reduceUs + computeUs;
  return rowsPerTeam * rowUs;
}
