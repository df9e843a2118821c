/** Lowers row and column kernels to launches on CUDA: one per launch, or several independent ones in a combo launch. */

import { HoldfastError } from "../../../errors/index.js";
import type { ColumnKernel } from "../../../ir/index.js";
import { kernelKey } from "../../../ir/index.js";
import type { LaunchCommand, Storage } from "../../../runtime/index.js";
import { type ColumnLaunch, hasRows, type RowLaunch } from "../../kernel-call.js";
import type { LaunchConfig } from "../../launch-config.js";
import { cachedSource } from "../../source-cache.js";
import type { Target } from "../../target.js";
import { cudaColumnConfig } from "./column-config.js";
import { columnSumTarget } from "./column-sum-layout.js";
import {
  columnGroupConfig,
  columnScratchBytes,
  fitColumnArguments,
  isSplitReduction,
  type PartialColumns,
  splitColumnConfig,
} from "./combo/column-group.js";
import type { ComboLaunch } from "./combo/combo-kernel.js";
import { canGroupRows, rowGroupConfig } from "./combo/row-group.js";
import { cudaRowConfig } from "./row-config.js";

type RowTarget = Pick<Target, "device" | "settings">;

/** Without a target, no row is kept in shared memory, functions are exact, and column sums have the bits of a column kernel. */
export function lowerRowOnCuda(launch: RowLaunch, target?: RowTarget): LaunchCommand {
  const { kernel, iteration, operands, prefetchable } = launch;
  const options = {
    ...{ prefetchable, device: target?.device, usesFastMath: usesFastMath(target) },
    keepsColumnOrder: target === undefined || columnSumTarget(target).keepsOrder,
  };
  return commandOf("rows", launch, cudaRowConfig(kernel, iteration, operands, options));
}

/** In TF32 and bf16, kernels use approximate functions: the operands of matrix products have much larger errors. */
export function usesFastMath(target: RowTarget | undefined): boolean {
  return target !== undefined && target.settings.precision !== "f32";
}

/** `parallelism`: the number of SMs. */
export function lowerColumnOnCuda(launch: ColumnLaunch, parallelism: number): LaunchCommand {
  return commandOf("columns", launch, cudaColumnConfig(launch.kernel, launch, parallelism));
}

/** `family` distinguishes the cache keys of row and column kernels. */
function commandOf(
  family: string,
  { kernel, operands, scalars = [] }: RowLaunch | ColumnLaunch,
  { key, blocks, sizes, print }: LaunchConfig,
): LaunchCommand {
  return {
    kind: "launch",
    op: kernel.name,
    source: cachedSource(`cuda ${family} ${kernelKey(kernel)} ${key}`, print),
    blocks,
    arguments: [...operands, ...sizes, ...scalars],
  };
}

/**
 * Independent row kernels in one launch: none accesses memory that another one writes. Requires `canComboRows`. The bits are those of
 * separate launches.
 */
export function lowerRowCombo(
  launches: readonly RowLaunch[],
  op: string,
  target?: RowTarget,
): readonly LaunchCommand[] {
  const full = launches.filter(hasRows);
  if (full.length === 0) return [];
  if (!canGroupRows(full)) throw cannotCombine(full.length);
  return [comboCommand(rowGroupConfig(full, { usesFastMath: usesFastMath(target) }), "row combo", op)];
}

export interface ColumnGroupOptions {
  readonly scratch?: Storage | undefined;
  /** Reductions whose partials an earlier launch has stored; this group combines them. */
  readonly earlier?: PartialColumns | undefined;
  readonly op?: string;
}

/**
 * Independent column kernels in one launch, or in two launches for two-phase reductions. `scratch` is the memory for partials, of at least
 * `columnScratchBytes`. Requires `canGroupColumns`. The bits are those of separate launches.
 */
export function lowerColumnGroup(
  launches: readonly ColumnLaunch[],
  { scratch, earlier, op = "columns" }: ColumnGroupOptions,
): readonly LaunchCommand[] {
  const full = launches.filter(({ columns }) => columns > 0);
  const inRuns = full.find(({ runs }) => runs);
  if (inRuns) throw hasRuns(inRuns.kernel);
  const kernels = [...full, ...(earlier?.members ?? [])].map(({ kernel }) => kernel);
  if (kernels.length === 0) return [];
  if (!fitColumnArguments(kernels)) throw cannotGroup(kernels);
  requireScratch(columnScratchBytes(full), scratch);
  if (earlier) requireScratch(columnScratchBytes(earlier.members), earlier.scratch);
  return columnGroupConfig(full, scratch, earlier).map((config, launch) =>
    comboCommand(config, `column group, launch ${launch}`, op),
  );
}

/** The first phase of two-phase column kernels. `lowerColumnGroup` runs the second. */
export function lowerPartials(columns: PartialColumns, op: string): readonly LaunchCommand[] {
  const kernels = columns.members.map(({ kernel }) => kernel);
  if (kernels.length === 0) return [];
  if (!fitColumnArguments(kernels)) throw cannotGroup(kernels);
  const short = columns.members.find((member) => !isSplitReduction(member));
  if (short) throw isNotSplit(short);
  requireScratch(columnScratchBytes(columns.members), columns.scratch);
  return [comboCommand(splitColumnConfig(columns), "column partials", op)];
}

function comboCommand(
  { key, blocks, arguments: values, print }: ComboLaunch,
  family: string,
  op: string,
): LaunchCommand {
  return {
    ...{ kind: "launch", op, blocks, arguments: values },
    source: cachedSource(`cuda ${family}: ${key}`, print),
  };
}

function requireScratch(needed: number, scratch: Storage | undefined): void {
  const available = scratch?.span.size ?? 0;
  if (available >= needed) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `These column kernels need ${needed} bytes of scratch memory for partials, and got ${available}. ` +
      "Call columnScratchBytes for the size.",
    { numbers: { needed, available } },
  );
}

export function cannotCombine(kernels: number): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `${kernels} row kernels cannot run in one launch: this needs a GPU, at most 4 KiB of arguments, and reduced rows of at most ` +
      "8192 elements. Call canComboRows first.",
    { numbers: { kernels } },
  );
}

export function cannotGroup(kernels: readonly ColumnKernel[]): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `${kernels.length} column kernels cannot run in one launch: this needs a GPU and at most 4 KiB of arguments. ` +
      "Call canGroupColumns first.",
    { numbers: { kernels: kernels.length } },
  );
}

/** The error of a launch that takes columns in one run only. */
export function hasRuns({ name }: ColumnKernel): HoldfastError {
  return new HoldfastError(
    "UNSUPPORTED",
    `Kernel "${name}" was launched over runs of columns, which only a GPU reduces, and not in one launch with other kernels. ` +
      "Check the capability reducesColumnRuns, or launch the kernel once for each run.",
  );
}

function isNotSplit({ kernel, rows }: Pick<ColumnLaunch, "kernel" | "rows">): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `Kernel "${kernel.name}" reduces ${rows} rows in one phase, so it has no partials. Call isSplitReduction first.`,
    { numbers: { rows } },
  );
}
