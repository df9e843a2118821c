/** Selects the tiles of channels-last and depthwise convolutions by measurement, among the candidates of the shortest estimated times. */

import { backendOf } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { type Clock, literalKey } from "../../units/index.js";
import type { ConvolutionCall } from "../program/kinds/convolution.js";
import type { Call, Program } from "../program/program.js";
import { choicesIn, type KnownChoices, type TunableKind, tuneCalls } from "./tune-calls.js";

const knownConvolutions: KnownChoices = new Map();

const convolutions: TunableKind<ConvolutionCall> = {
  name: "convolution",
  /** Estimates are wrong by a factor, not by an order of magnitude. */
  maxCandidates: 6,
  isTunable: (work): work is ConvolutionCall =>
    work.kind === "convolution" && (work.shape.channelsLast ?? work.shape.depthwise) !== undefined,
  key: ({ shape: { algorithm: _, ...shape }, operands: { bias } }) => literalKey([shape, bias !== undefined]),
  countCandidates: (runtime, { shape }) => backendOf(runtime).convolutionCandidates(shape),
  algorithmOf: ({ shape }) => shape.algorithm ?? 0,
  withAlgorithm(runtime, { shape, operands: { scratch, ...operands }, ...work }, algorithm, makeScratch) {
    const tuned = { ...shape, algorithm };
    const size = backendOf(runtime).convolutionScratchBytes(tuned);
    const kept = scratch?.size === size ? scratch : size > 0 ? makeScratch(size) : undefined;
    return { ...work, shape: tuned, operands: { ...operands, ...(kept && { scratch: kept }) } };
  },
};

/** Exact products have the same bits with every algorithm, and so have depthwise images. */
const exactConvolutions: typeof convolutions = {
  ...convolutions,
  isTunable: (work): work is ConvolutionCall =>
    convolutions.isTunable(work) &&
    (work.shape.depthwise
      ? work.shape.direction !== "weight-gradient"
      : work.shape.channelsLast?.isExact === true),
};

interface ConvolutionTuning {
  readonly known?: KnownChoices;
  readonly clock?: Clock;
  /** True if no bit may change. */
  readonly keepsBits?: boolean;
}

/** True if a convolution has another algorithm than before. */
export function autotuneConvolutions(
  runtime: Runtime,
  program: Program,
  { known = knownConvolutions, clock, keepsBits = false }: ConvolutionTuning = {},
): boolean {
  const kind = keepsBits ? exactConvolutions : convolutions;
  return tuneCalls(kind, runtime, program, { known, ...(clock && { clock }) });
}

/** The algorithms of a program's convolutions, for another program that must have the same bits. */
export function convolutionAlgorithmsIn(runtime: Runtime, calls: readonly Call[]): KnownChoices {
  return choicesIn(convolutions, runtime, calls);
}
