/**
 * The prologue of skinny GEMMs: a row kernel that computes their one row of A in the same launch, such as a norm. Every CTA computes the
 * row, in shared memory, while its first weights are being loaded. The first CTA also stores the row kernel's other outputs.
 */

import type { DeviceInfo, GemmPrecision } from "../../../driver/index.js";
import type { Iteration, RowKernel } from "../../../ir/index.js";
import { kernelKey } from "../../../ir/index.js";
import type { Storage } from "../../../runtime/index.js";
import { span } from "../../../units/index.js";
import type { BlockFunction } from "../../codegen/cuda/combo/combo-kernel.js";
import type { NamedParameter } from "../../codegen/cuda/kernel-text.js";
import { cudaRowFunction, type RowFunction } from "../../codegen/cuda/row-config.js";
import { maxVectorBytes, registerBytesPerThread, warpSize } from "../../cost-model.js";
import type { GemmDesc } from "../desc.js";
import { countSteps, listGroupedSkinnyConfigs, type SkinnyConfig } from "./configs.js";

export interface Prologue {
  readonly kernel: RowKernel;
  readonly iteration: Iteration;
  /** The inputs, then the outputs; undefined for A, which has no memory. */
  readonly operands: readonly (Storage | undefined)[];
  readonly scalars: readonly number[];
  /** The output that is A. */
  readonly output: number;
}

/** The code of a prologue for one config, and the arguments of its parameters. */
export interface PrintedPrologue {
  /** Identifies the code. */
  readonly key: string;
  /** In the order of the function's parameters, without the leading ones; undefined for A. */
  readonly arguments: readonly (Storage | number | undefined)[];
  /** The device function, named `computeActivations`. */
  readonly source: BlockFunction;
}

/** The share of a thread's registers that the row and the weights in flight may take: the rest is for addresses and accumulators. */
const maxRegisterShare = 3 / 4;

/** The configs with which one launch computes A and these GEMMs of it; none if it cannot. */
export function listPrologueConfigs(
  device: DeviceInfo,
  precision: GemmPrecision,
  problems: readonly GemmDesc[],
  prologue: Prologue,
): readonly SkinnyConfig[] {
  if (problems.some(({ m }) => m !== 1)) return [];
  return listGroupedSkinnyConfigs(device, precision, problems).filter((config) => {
    const cachedBytes = config.streamsA ? undefined : functionFor(config, prologue)?.cachedBytes;
    if (cachedBytes === undefined) return false;
    const weightBytes = config.groups * countSteps(config).inFlight * maxVectorBytes;
    const available = registerBytesPerThread(config.warps * warpSize, config.ctasPerSm);
    return cachedBytes + weightBytes <= maxRegisterShare * available;
  });
}

/** Printed functions by their code, threads and length of the row: the layers of a model have the same ones. */
const printed = new Map<string, BlockFunction>();

export function printPrologue(config: SkinnyConfig, prologue: Prologue): PrintedPrologue | undefined {
  const { kernel, operands, scalars } = prologue;
  const found = functionFor(config, prologue);
  if (!found) return undefined;
  const key = `${kernelKey(kernel)}/${found.key}`;
  const codeKey = `${config.warps} ${config.k} ${key}`;
  const source = printed.get(codeKey) ?? found.print("computeActivations");
  printed.set(codeKey, source);
  return { key, arguments: [...operands, ...found.sizes, ...scalars], source };
}

function functionFor(config: SkinnyConfig, prologue: Prologue): RowFunction | undefined {
  const { kernel, iteration, operands, output } = prologue;
  const [first] = operands.flatMap((operand) => operand ?? []);
  if (!first || kernel.inputs.includes("draw")) return undefined;
  // Shared memory is aligned, and no other operand overlaps it.
  const shared: Storage = { ...first, span: span(sharedAddress, config.k * maxVectorBytes) };
  const storages = operands.map((operand) => operand ?? shared);
  return cudaRowFunction(kernel, iteration, storages, { threads: config.warps * warpSize, own: output });
}

/** Beyond all device memory. */
const sharedAddress = 2 ** 50;

/** The kernel's name of a parameter of the prologue. */
export const prologueParameter = ({ name }: NamedParameter): string => `prologue_${name}`;
