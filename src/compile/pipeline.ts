/**
 * The passes, as the phases they run in. A phase edits a program in place, into an equivalent one. A user can switch
 * off a pass. Some passes have several phases, because a phase may need the result of another pass's phase.
 */

import { capabilitiesOf } from "../kernels/index.js";
import type { Runtime } from "../runtime/index.js";
import { measureFusions } from "./autotune/epilogues.js";
import { measureSums } from "./autotune/gemm-sums.js";
import type { WeightCopies } from "./execute/weight-copies.js";
import { fuseAttentionCasts } from "./fusion/attention-cast.js";
import { batchCopies } from "./fusion/batch-copies.js";
import { batchGemms } from "./fusion/batch-gemms.js";
import { storeConvertedViews } from "./fusion/cast-views.js";
import { coalesceCasts } from "./fusion/coalesce-casts.js";
import { fuseColumnReductions } from "./fusion/column-reductions.js";
import { fuseHorizontally } from "./fusion/combo-kernels.js";
import { fuseConvolutionEpilogues } from "./fusion/convolution-epilogues.js";
import { fuseEpilogues } from "./fusion/epilogue.js";
import { fuseGemmPrologues } from "./fusion/gemm-prologues.js";
import { fuseGemmSums } from "./fusion/gemm-sums.js";
import { groupGemms } from "./fusion/group-gemms.js";
import { groupReductions } from "./fusion/group-reductions.js";
import { groupScatters } from "./fusion/group-scatters.js";
import { splitElementwise } from "./fusion/split-elementwise.js";
import { splitReductions } from "./fusion/split-reductions.js";
import { fuse } from "./fusion/vertical/fuse.js";
import { readWidened } from "./fusion/widened-reads.js";
import { accumulateScatters } from "./passes/accumulate-scatters.js";
import { writeAttentionOutputs } from "./passes/attention-outputs.js";
import { storeActivationsAsBf16 } from "./passes/bf16-activations.js";
import { compactGradients } from "./passes/compact-gradients.js";
import { propagateCopies } from "./passes/copy-propagation.js";
import { eliminateCommonCalls } from "./passes/cse.js";
import { eliminateDeadCalls } from "./passes/dce.js";
import { hoistOutputs } from "./passes/hoist-outputs.js";
import { mergeDraws } from "./passes/merge-draws.js";
import { pretransposeOperands } from "./passes/pretranspose-operands.js";
import { pretransposeWeights } from "./passes/pretranspose-weights.js";
import { recomputeActivations } from "./passes/recompute-activations.js";
import { recomputeCheapValues } from "./passes/recompute-cheap-values.js";
import { recomputeInReaders } from "./passes/recompute-in-readers.js";
import { rematerialize } from "./passes/rematerialize.js";
import { renameBuffers } from "./passes/rename-buffers.js";
import { padRows } from "./passes/row-padding.js";
import { tileRows } from "./passes/row-tiling.js";
import { readSignsOfCasts } from "./passes/sign-reads.js";
import { writeStridedOutputs } from "./passes/strided-outputs.js";
import { storeOperandsAsTf32 } from "./passes/tf32-operands.js";
import { keepWeightCopies } from "./passes/weight-copies.js";
import type { BufferSlice, Call, Program } from "./program/program.js";

/** Facts about the step that its calls do not show. */
export interface StepFacts {
  /** True if GEMMs may round differently from eager code, because their algorithms are chosen by measurement. */
  readonly isTuned: boolean;
  /** Persistent memory that is not read after the step. */
  readonly deadOnExit: readonly BufferSlice[];
  /** The weight copies that the step keeps from call to call. */
  readonly copies: WeightCopies;
}

/** In the order of their first phases. */
export const passNames = [
  "cse",
  "copyPropagation",
  "dce",
  "horizontalFusion",
  "epilogueFusion",
  "rematerialize",
  "schedule",
  "verticalFusion",
  "autotune",
] as const;

/** The name of a compiler pass, as `passes` takes it. */
export type PassName = (typeof passNames)[number];

interface Phase {
  readonly pass: PassName;
  /** The purpose of the phase, for explain(). */
  readonly purpose: string;
  /** Edits the program in place. */
  run(program: Program, runtime: Runtime, facts: StepFacts): void;
}

/**
 * In the order in which they run. In float32 every phase keeps the bits of the step's results. In TF32 and bf16, `bf16Activations`
 * rounds, `columnReductions` and `rowTiling` can add in another order, and a phase that changes a GEMM can change its algorithm.
 */
export const phases = {
  cse: {
    pass: "cse",
    purpose: "calls that do the same work on the same values run once",
    run: (program) => eliminateCommonCalls(program),
  },
  copyPropagation: {
    pass: "copyPropagation",
    purpose: "values are read at their source and written to their destination",
    run(program, runtime, { isTuned }) {
      propagateCopies(program);
      writeStridedOutputs(runtime, program, isTuned);
      writeAttentionOutputs(program);
      if (isTuned) accumulateScatters(program);
    },
  },
  dce: {
    pass: "dce",
    purpose: "results that no call reads are not computed",
    run: (program, _, { deadOnExit }) => eliminateDeadCalls(program, deadOnExit),
  },
  mergeDraws: {
    pass: "horizontalFusion",
    purpose: "all draws of random numbers are reserved in one call",
    run: (program) => mergeDraws(program),
  },
  coalesceCasts: {
    pass: "horizontalFusion",
    purpose: "adjacent weights are converted in one call",
    run: coalesceCasts,
  },
  attentionCasts: {
    pass: "epilogueFusion",
    purpose: "on a GPU, attention stores half floats if every reader wants half floats",
    run: (program, runtime) => fuseAttentionCasts(runtime, program),
  },
  // Before `batchGemms`, which moves the results of GEMMs.
  gemmSums: {
    pass: "epilogueFusion",
    purpose: "on some GPUs, GEMMs whose results are added are one launch over all of K",
    run(program, runtime, { isTuned }) {
      if (isTuned) fuseGemmSums(runtime, program, (candidates) => measureSums(runtime, candidates));
    },
  },
  batchGemms: {
    pass: "horizontalFusion",
    purpose: "on a GPU, independent GEMMs of the same shape are one batched GEMM",
    run: (program, runtime, { isTuned }) => batchGemms(runtime, program, isTuned),
  },
  rematerialize: {
    pass: "rematerialize",
    purpose: "cheap values are recomputed after the memory peak instead of being kept",
    run: (program) => void rematerialize(program),
  },
  renameBuffers: {
    pass: "schedule",
    purpose: "on a GPU, a value that is overwritten after it was read gets a new buffer",
    run(program, runtime) {
      if (canRenameBuffers(runtime)) renameBuffers(program);
    },
  },
  hoistOutputs: {
    pass: "schedule",
    purpose: "on a GPU, small outputs with fewer dependencies are split off and run earlier",
    run: (program, runtime) => hoistOutputs(runtime, program),
  },
  convolutionEpilogues: {
    pass: "epilogueFusion",
    purpose: "on some GPUs, a function of a convolution's result runs in the convolution",
    run: (program) => fuseConvolutionEpilogues(program),
  },
  verticalFusion: {
    pass: "verticalFusion",
    purpose: "elementwise chains and row reductions share a kernel",
    run(program, runtime, { deadOnExit, isTuned }) {
      splitElementwise(program);
      storeConvertedViews(program);
      readWidened(runtime, program);
      fuse(runtime, program, { deadOnExit });
      if (isTuned) readSignsOfCasts(program);
    },
  },
  recomputeInReaders: {
    pass: "rematerialize",
    purpose: "on a GPU, a large value is computed again by readers that load what it is computed from",
    run: (program, runtime) => recomputeInReaders(runtime, program),
  },
  // After `verticalFusion`: a weight copy is stored by the whole kernel of the update. Before `compactGradients`, which splits that kernel.
  weightCopies: {
    pass: "verticalFusion",
    purpose: "converted weights are kept from call to call; the kernel that updates the weights stores them",
    run: (program, runtime, { copies }) => keepWeightCopies(runtime, program, copies),
  },
  compactGradients: {
    pass: "verticalFusion",
    purpose: "on a GPU, gradients of large embeddings are stored as compact rows",
    run: (program, runtime, { deadOnExit }) => compactGradients(runtime, program, deadOnExit),
  },
  pretransposeWeights: {
    pass: "autotune",
    purpose: "on some GPUs, TF32 weights are transposed for GEMMs that need them K-major",
    run(program, runtime, { isTuned }) {
      if (isTuned) pretransposeWeights(runtime, program);
    },
  },
  gemmEpilogues: {
    pass: "epilogueFusion",
    purpose: "on some GPUs, elementwise work on a GEMM's result runs in its epilogue",
    run(program, runtime, { isTuned }) {
      if (isTuned) fuseEpilogues(runtime, program, (candidates) => measureFusions(runtime, candidates));
    },
  },
  // Before `bf16Activations`, which needs aligned rows; after `gemmEpilogues`, whose operands have no padding.
  rowPadding: {
    pass: "autotune",
    purpose: "on a GPU, rows that large GEMMs write or read are padded to aligned lengths",
    run(program, runtime, { isTuned }) {
      if (isTuned) padRows(runtime, program);
    },
  },
  bf16Activations: {
    pass: "autotune",
    purpose: "on a GPU, results are stored as bf16 if later kernels convert them on load",
    run(program, runtime, { isTuned }) {
      if (isTuned) storeActivationsAsBf16(runtime, program);
    },
  },
  // After `bf16Activations`, which halves what values are computed from; before `columnReductions`, which adds sums to row kernels.
  recomputeCheapValues: {
    pass: "rematerialize",
    purpose: "on a GPU, a large value is computed again by readers that load no more for that than the value",
    run: (program, runtime) => recomputeCheapValues(runtime, program),
  },
  // Before `columnReductions`: a kernel with column sums cannot be split into chunks of rows, but the kernel of a chunk can start its sum.
  rowTiling: {
    pass: "schedule",
    purpose: "on a GPU, GEMMs with large results and their readers run on chunks of rows",
    run(program, runtime, { isTuned }) {
      if (isTuned) tileRows(runtime, program);
    },
  },
  columnReductions: {
    pass: "epilogueFusion",
    purpose: "on a GPU, column sums start in kernels that already hold the rows",
    run: (program, runtime) => fuseColumnReductions(runtime, program),
  },
  // After `columnReductions`: a sum that starts in the kernel of a gradient adds the values before they are rounded.
  tf32Operands: {
    pass: "autotune",
    purpose: "on some GPUs, kernels store the operands of TF32 convolutions rounded",
    run(program, runtime, { isTuned }) {
      if (isTuned) storeOperandsAsTf32(runtime, program);
    },
  },
  recomputeActivations: {
    pass: "rematerialize",
    purpose: "on a GPU, large activations are recomputed in backward if this lowers the memory peak by much",
    run: (program, runtime) => recomputeActivations(runtime, program),
  },
  batchCopies: {
    pass: "horizontalFusion",
    purpose: "on a GPU, copies of the same shape are one launch",
    run: (program, runtime) => batchCopies(runtime, program),
  },
  groupGemms: {
    pass: "horizontalFusion",
    purpose: "on a GPU, small GEMMs are one launch",
    run: (program, runtime, { isTuned }) => groupGemms(runtime, program, isTuned),
  },
  // Before `comboKernels`, which would move the row kernels into other launches.
  gemmPrologues: {
    pass: "verticalFusion",
    purpose: "on some GPUs, the row kernel before GEMMs of one row runs in their launch",
    run(program, runtime, { isTuned }) {
      if (isTuned) fuseGemmPrologues(runtime, program);
    },
  },
  groupReductions: {
    pass: "horizontalFusion",
    purpose: "on a GPU, column reductions are one launch",
    run: (program, runtime) => groupReductions(runtime, program),
  },
  groupScatters: {
    pass: "horizontalFusion",
    purpose: "on a GPU, scatters such as the gradients of embeddings are one launch",
    run: (program, runtime) => groupScatters(runtime, program),
  },
  splitReductions: {
    pass: "schedule",
    purpose: "on a GPU, grouped reductions start before the group's last input is ready",
    run: (program, runtime) => splitReductions(runtime, program),
  },
  comboKernels: {
    pass: "horizontalFusion",
    purpose: "on a GPU, small row kernels share a launch with independent ones",
    run: (program, runtime) => fuseHorizontally(runtime, program),
  },
  pretransposeOperands: {
    pass: "autotune",
    purpose: "on some GPUs, an operand of a large TF32 GEMM is transposed before it",
    run(program, runtime, { isTuned }) {
      if (isTuned) pretransposeOperands(runtime, program);
    },
  },
} satisfies Readonly<Record<string, Phase>>;

/** The last phase, which also reports its measurements; see autotune/gemms.ts. */
export const gemmAlgorithms = {
  name: "gemmAlgorithms",
  pass: "autotune",
  purpose: "on a GPU, the fastest measured algorithm of each GEMM",
} as const;

export type RewritePhase = keyof typeof phases;
export type PhaseName = RewritePhase | (typeof gemmAlgorithms)["name"];

export const rewritePhases = Object.keys(phases) as readonly RewritePhase[];
export const phaseNames: readonly PhaseName[] = [...rewritePhases, gemmAlgorithms.name];

export function passOf(name: PhaseName): PassName {
  return name === gemmAlgorithms.name ? gemmAlgorithms.pass : phases[name].pass;
}

export function purposeOf(name: PhaseName): string {
  return name === gemmAlgorithms.name ? gemmAlgorithms.purpose : phases[name].purpose;
}

/**
 * Which passes run. `false` switches off all phases of a pass; the name of a phase switches off that phase alone. Defaults: all run,
 * but `autotune` keeps eager code's bits in float32, and the phase `rematerialize` is off on a GPU with enough memory.
 *
 * `streams` decides whether calls run on side streams: true or false; default: a GPU tries both. `pdl: false` switches programmatic
 * dependent launch off. `schedule: false` switches both off.
 */
export type PassSettings = Readonly<Partial<Record<PassName | PhaseName | "streams" | "pdl", boolean>>>;

export function isEnabled(settings: PassSettings, name: PhaseName): boolean {
  return settings[passOf(name)] !== false && settings[name] !== false;
}

/** Whether calls may run on side streams; undefined: the device decides. */
export function streamSetting({ streams, schedule }: PassSettings): boolean | undefined {
  return streams ?? (schedule === false ? false : undefined);
}

export function pdlSetting({ pdl, schedule }: PassSettings): boolean {
  return pdl ?? schedule !== false;
}

/** A CPU runs calls one after the other, so the memory of a second buffer would buy nothing. */
export const canRenameBuffers = (runtime: Runtime): boolean => capabilitiesOf(runtime).hasStreams;

/** The program after a phase, for explain(). */
export interface Stage {
  readonly name: PhaseName | "trace";
  readonly calls: readonly Call[];
}
