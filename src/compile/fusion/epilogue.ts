/**
 * Epilogue fusion: runs elementwise work on a GEMM's result in the epilogue of its kernel, which saves a pass over memory. Examples: an
 * activation after a wide layer, its gradient, or the sum with a residual's gradient. The kernels say which GEMMs can.
 */

import { canFuseEpilogue, type Epilogue, prefersFusedEpilogue } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { describeGemm } from "../autotune/gemm-desc.js";
import {
  type BufferSlice,
  type Call,
  forwardedOutput,
  type GemmCall,
  type GemmEpilogueCall,
  isSameSlice,
  latestPhase,
  type Node,
  type Program,
  type RowCall,
} from "../program/program.js";
import { areSeparate } from "../program/slices.js";
import { isReadByOthers } from "../program/uses.js";

/** `selector` decides by more than an estimate: it gets all candidates at once, to measure them together. */
export function fuseEpilogues(
  runtime: Runtime,
  program: Program,
  selector: (candidates: readonly FusionCandidate[]) => FusionSelection = () => isProbablyFaster(runtime),
): void {
  const isFaster = selector(candidatesIn(runtime, program));
  for (const node of program.nodes) {
    for (const writer of writersOf(program, node)) {
      const candidate = fusionCandidate(runtime, program, writer, node);
      const anchor = candidate && isFaster(candidate) && program.fusionAnchor(writer, node);
      if (!candidate || !anchor) continue;
      program.fuse(writer, node, anchor);
      program.replace(writer, candidate.fused);
      break;
    }
  }
}

/** A GEMM and a row kernel on its result, and both as one call. */
export interface FusionCandidate {
  readonly gemm: GemmCall;
  readonly rows: Call;
  readonly fused: Call & { readonly work: GemmEpilogueCall };
}

/** Decides whether the fused call is faster. */
export type FusionSelection = (candidate: FusionCandidate) => boolean;

/** The decision without a measurement. */
export function isProbablyFaster(runtime: Runtime): FusionSelection {
  return ({ gemm, fused }) => prefersFusedEpilogue(runtime, describeGemm(gemm.problem), fused.work.epilogue);
}

function candidatesIn(runtime: Runtime, program: Program): readonly FusionCandidate[] {
  return program.nodes.flatMap((node) =>
    writersOf(program, node).flatMap((writer) => fusionCandidate(runtime, program, writer, node) ?? []),
  );
}

/** The calls that write what a row kernel reads. */
function writersOf(program: Program, node: Node): readonly Node[] {
  return node.call.work.kind === "row" ? [...program.neighboursOf(node).writers] : [];
}

/** The calls of a GEMM and of a row kernel as one; undefined if they cannot be fused. */
function fusionCandidate(
  runtime: Runtime,
  program: Program,
  gemm: Node,
  rows: Node,
): FusionCandidate | undefined {
  const [first, second] = [gemm.call, rows.call];
  if (first.work.kind !== "gemm" || second.work.kind !== "row") return undefined;
  if (second.isRematerialized && !first.isRematerialized) return undefined;
  const { problem } = first.work;
  const { operands, scalars } = second.work;
  const candidate = epilogueIn(problem, second.work);
  if (!candidate) return undefined;
  const { buffer } = problem.c.slice;
  const storesC = buffer.storage !== undefined || isReadByOthers(program, buffer, [rows]);
  const epilogue: Epilogue = { ...candidate, storesC };
  if (!canFuseEpilogue(runtime, describeGemm(problem), epilogue)) return undefined;
  const { scratch: _, algorithm: __, ...plain } = problem;
  const work: GemmEpilogueCall = {
    kind: "gemm-epilogue",
    problem: plain,
    epilogue,
    operands,
    scalars,
  };
  const fused = { op: `${first.op} + ${second.op}`, phase: latestPhase([first, second]), work };
  return { gemm: first.work, rows: second, fused };
}

/** The epilogue that a row kernel can be: all operands have C's layout, and none is overwritten before it is read. */
function epilogueIn(
  { m, n, a, b, c, bias }: GemmCall["problem"],
  call: RowCall,
): Omit<Epilogue, "storesC"> | undefined {
  const { kernel, operands } = call;
  const { outer, row } = call.iteration;
  if (outer.length > 0 || row.size !== m * n || row.strides.some((stride) => stride !== 1)) return undefined;
  const [inputs, outputs] = [operands.slice(0, kernel.inputs.length), operands.slice(kernel.inputs.length)];
  const forwarded = inputs.map((_, input) => forwardedOutput(call, input));
  const gemmInput = inputs.findIndex(
    (slice, index) => forwarded[index] === undefined && isSameSlice(slice, c.slice),
  );
  if (gemmInput < 0 || !operands.every(isVectorAligned)) return undefined;
  const others = inputs.filter((_, index) => index !== gemmInput && forwarded[index] === undefined);
  // A block stores its outputs while others still read.
  const read = [...others, a.slice, b.slice, c.slice, ...(bias ? [bias] : [])];
  const areFresh = read.every((one) => outputs.every((output) => areSeparate(one, output)));
  return areFresh && others.every((other) => areSeparate(other, c.slice))
    ? { kernel, gemmInput, forwarded }
    : undefined;
}

/** Kernels move 16 bytes at a time. */
function isVectorAligned({ buffer, offset }: BufferSlice): boolean {
  return ((buffer.storage?.span.address ?? 0) + offset) % 16 === 0;
}
